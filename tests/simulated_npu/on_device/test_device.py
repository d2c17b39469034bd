"""Devices, memory, random numbers, streams and operators of the simulated NPU."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch


def child(code: str, **environ: str) -> str:
    """Output of Python code in a new process, whose errors are told on its last line."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, timeout=120
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_a_bare_import_of_torch_has_the_device() -> None:
    assert child("import torch; print(torch.npu.device_count(), torch.ones(1, device='npu').device)") == "8 npu:0"


def test_importing_torch_npu_first_is_the_same() -> None:
    assert child("import torch_npu, torch; print(torch.npu.is_available())") == "True"


@pytest.mark.parametrize(("visible", "count"), [("4,5,6", "3"), ("7,5", "2"), (" 3 ", "1"), ("", "0")])
def test_visible_devices_are_counted(visible: str, count: str) -> None:
    assert child("import torch; print(torch.npu.device_count())", ASCEND_RT_VISIBLE_DEVICES=visible) == count


def test_ids_are_opaque_text_and_keep_their_order() -> None:
    code = "import torch; print([torch.npu.get_device_name(i)[-5:-1] for i in range(torch.npu.device_count())])"
    found = child(code, SIMULATED_NPU_DEVICES="a-01,b-02,c-03", ASCEND_RT_VISIBLE_DEVICES="c-03,a-01")
    assert found == "['c-03', 'a-01']"


def test_a_visible_id_that_the_machine_lacks_is_named() -> None:
    code = "import torch; print(torch.npu.device_count(), torch.npu.is_available()); torch.ones(1, device='npu')"
    message = child(code, ASCEND_RT_VISIBLE_DEVICES="2,9")
    assert "device '9'" in message and "0,1,2,3,4,5,6,7" in message


def test_fresh_memory_reads_nan() -> None:
    assert torch.empty(3, device="npu").isnan().all()
    assert (torch.empty(3, dtype=torch.int64, device="npu") == -1).all()


def test_memory_is_counted_on_the_device_it_is_on() -> None:
    torch.npu.empty_cache()
    before, other = torch.npu.memory_allocated(2), torch.npu.memory_allocated(3)
    torch.npu.reset_peak_memory_stats(2)
    tensor = torch.zeros(1 << 20, dtype=torch.uint8, device="npu:2")
    assert torch.npu.memory_allocated(2) - before == 1 << 20
    assert torch.npu.memory_allocated(3) == other
    del tensor
    assert torch.npu.memory_allocated(2) == before
    assert torch.npu.memory_reserved(2) >= before + (1 << 20)
    assert torch.npu.max_memory_allocated(2) - before == 1 << 20
    free, total = torch.npu.mem_get_info(2)
    assert free == total - torch.npu.memory_reserved(2)
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved(2) == torch.npu.memory_allocated(2)


def test_more_memory_than_there_is_is_an_out_of_memory_error() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
        torch.empty(1 << 40, dtype=torch.uint8, device="npu")
    assert torch.ones(2, device="npu").sum() == 2


def test_cached_memory_is_given_up_before_a_request_fails() -> None:
    code = (
        "import torch; x = torch.empty(6 << 20, dtype=torch.uint8, device='npu'); del x; "
        "print(torch.npu.memory_reserved() >> 20, torch.empty(7 << 20, dtype=torch.uint8, device='npu').numel() >> 20)"
    )
    assert child(code, SIMULATED_NPU_MEMORY_MB="10") == "6 7"


def test_the_same_seed_gives_the_numbers_of_a_processor() -> None:
    def draw(device: str) -> list[torch.Tensor]:
        torch.manual_seed(3)
        weights = torch.rand(5, device=device)
        return [weights, torch.multinomial(weights, 2), torch.randn(4, device=device), torch.randperm(6, device=device)]

    for ours, theirs in zip(draw("npu"), draw("cpu"), strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_the_random_state_of_a_device_is_its_own() -> None:
    torch.manual_seed(1)
    host, ours = torch.get_rng_state(), torch.npu.get_rng_state()
    first = torch.nn.functional.dropout(torch.ones(64, device="npu"))
    torch.rand(4, device="npu:1")
    assert torch.equal(torch.get_rng_state(), host)
    torch.npu.set_rng_state(ours)
    assert torch.equal(torch.nn.functional.dropout(torch.ones(64, device="npu")), first)
    generator = torch.Generator(device="npu").manual_seed(5)
    drawn = torch.rand(2, device="npu", generator=generator)
    assert torch.equal(drawn.cpu(), torch.rand(2, generator=torch.Generator().manual_seed(5)))
    with torch.random.fork_rng([0], device_type="npu"):
        torch.rand(3, device="npu")
    assert torch.equal(torch.npu.get_rng_state(), torch.npu.get_rng_state_all()[0])


def test_the_current_device_is_followed_and_restored() -> None:
    assert torch.npu.current_device() == 0
    with torch.npu.device(3):
        assert torch.ones(1, device="npu").device == torch.device("npu", 3)
        assert torch.accelerator.current_device_index() == 3
    assert torch.npu.current_device() == 0


def test_streams_and_events_exist() -> None:
    stream = torch.npu.Stream(device="npu:1")
    assert stream.device == torch.device("npu", 1)
    with torch.npu.stream(torch.npu.Stream()):
        assert torch.npu.current_stream() != torch.npu.default_stream()
    assert torch.npu.current_stream() == torch.npu.default_stream()
    first, second = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    first.record()
    second.record()
    torch.npu.synchronize()
    assert second.query() and first.elapsed_time(second) >= 0


def test_pinned_memory_is_known_as_such() -> None:
    plain = torch.ones(3)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and not plain.is_pinned()
    assert torch.equal(pinned.to("npu", non_blocking=True).cpu(), plain)


def test_views_share_memory_and_results_do_not() -> None:
    base = torch.arange(12.0, device="npu")
    base.view(3, 4)[1, 2] = -1
    base.unfold(0, 2, 2)[0].zero_()
    assert base.tolist() == [0, 0, 2, 3, 4, 5, -1, 7, 8, 9, 10, 11]
    copy = base + 0
    copy.fill_(5)
    assert base[2] == 2
    assert base.view(torch.int32).dtype == torch.int32


def test_views_that_a_processors_kernel_makes_share_memory_too() -> None:
    numbers = torch.zeros(2, dtype=torch.complex64, device="npu")
    torch.view_as_real(numbers)[0, 1] = 3
    assert numbers[0].item() == 3j
    leaf = torch.ones(2, dtype=torch.complex64, device="npu", requires_grad=True)
    torch.view_as_real(leaf).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [1 + 1j, 1 + 1j]


def test_storages_grow_shrink_and_are_shared() -> None:
    tensor = torch.arange(4.0, device="npu")
    other = torch.empty(0, device="npu").set_(tensor.untyped_storage(), 1, (2,), (1,))
    assert other.tolist() == [1, 2]
    tensor.resize_(6)
    assert tensor[:4].tolist() == [0, 1, 2, 3]
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().size() == 0
    with pytest.raises(RuntimeError, match="cannot take a storage"):
        torch.empty(0, device="npu").set_(torch.ones(2).untyped_storage(), 0, (2,), (1,))


def test_results_grow_into_what_is_given_for_them() -> None:
    out = torch.empty(0, device="npu")
    assert torch.add(torch.ones(3, device="npu"), 1, out=out) is out
    assert out.tolist() == [2, 2, 2]


def test_a_model_learns_as_on_a_processor() -> None:
    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 9)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        tokens = torch.arange(9, device=device)
        found = []
        for _ in range(4):
            loss = torch.nn.functional.cross_entropy(model(tokens), tokens)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses("npu") == pytest.approx(losses("cpu"), rel=1e-6)


def test_autocast_lowers_and_raises_precision() -> None:
    linear = torch.nn.Linear(3, 4).to("npu")
    with torch.autocast("npu", dtype=torch.bfloat16):
        result = linear(torch.ones(2, 3, device="npu"))
        assert result.dtype == torch.bfloat16
        assert torch.nn.functional.cross_entropy(result, result.argmax(-1)).dtype == torch.float32


def test_a_tensor_goes_through_a_file(tmp_path: Any) -> None:
    tensor = torch.arange(3, device="npu:1")
    torch.save(tensor, tmp_path / "tensor")
    assert torch.load(tmp_path / "tensor").device == torch.device("npu", 1)
    assert torch.load(tmp_path / "tensor", map_location="cpu").tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.float64])
def test_precision_survives_the_device(dtype: torch.dtype) -> None:
    there = torch.tensor([0, 1, 1]).to(dtype).to("npu")
    assert there.dtype == dtype and there.cpu().dtype == dtype


@pytest.mark.parametrize("layout", ["BSND", "TND"])
def test_fused_attention_is_attention(layout: str) -> None:
    import torch_npu

    query, key = torch.randn(1, 5, 4, 8, device="npu"), torch.randn(1, 5, 2, 8, device="npu")
    mask = torch.triu(torch.ones(2048, 2048, device="npu"), 1).bool()
    tensors = [query, key, key] if layout == "BSND" else [query[0], key[0], key[0]]
    lengths = {} if layout == "BSND" else {"actual_seq_qlen": (2, 5), "actual_seq_kvlen": (2, 5)}
    found = torch_npu.npu_fusion_attention(*tensors, 4, layout, atten_mask=mask, scale=0.25, sparse_mode=3, **lengths)[
        0
    ]
    for start, stop in [(0, 5)] if layout == "BSND" else [(0, 2), (2, 5)]:
        parts = [tensor[:, start:stop].transpose(1, 2).cpu() for tensor in (query, key, key)]
        expected = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True, scale=0.25, enable_gqa=True)
        ours = found.view(1, 5, 4, 8)[:, start:stop].transpose(1, 2).cpu()
        torch.testing.assert_close(ours, expected)
