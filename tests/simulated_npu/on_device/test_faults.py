"""Mistakes that users of accelerators report, planted here: on the simulated NPU each of them is an error."""

import pytest
import torch
from roll_ascend.platform import NpuPlatform
from torch import nn

from tests.simulated_npu.on_device.test_device import child

FOUR = {"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7"}


def test_a_physical_id_is_no_index() -> None:
    assert "Invalid device ID 5: 4 devices are visible" in child("import torch; torch.npu.set_device(5)", **FOUR)
    code = "import torch; torch.ones(1, device='npu:5')"
    assert "Invalid device ID 5" in child(code, **FOUR)
    found = child("import torch; torch.npu.set_device(1); print(torch.npu.get_device_name())", **FOUR)
    assert found.endswith("id 5)")


def test_inputs_left_on_the_host_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2)).to("npu")
    with pytest.raises(RuntimeError, match="found at least two devices, npu:0 and cpu"):
        model(torch.tensor([1, 2]))


def test_a_module_left_on_the_host_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4).to("npu"), nn.Linear(4, 2))
    with pytest.raises(RuntimeError, match="found at least two devices, npu:0 and cpu"):
        model(torch.ones(1, 4, device="npu"))


def test_a_bare_device_name_mixed_with_an_indexed_one_is_refused() -> None:
    with pytest.raises(RuntimeError, match="npu:0 and npu:1"):
        torch.ones(2, device="npu") + torch.ones(2, device="npu:1")


def test_a_mask_made_on_the_host_is_refused() -> None:
    with pytest.raises(RuntimeError, match="found at least two devices"):
        torch.ones(2, 3, device="npu").masked_fill(torch.ones(2, 3, dtype=torch.bool), 0.0)


def test_a_generator_of_the_host_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'npu' device type for generator"):
        torch.rand(2, device="npu", generator=torch.Generator())


def test_memory_that_nobody_wrote_shows() -> None:
    weights = nn.Linear(3, 3, device="meta").to_empty(device="npu")
    assert weights(torch.ones(1, 3, device="npu")).isnan().all()


def test_token_ids_of_another_type_are_refused_where_they_select() -> None:
    logits, tokens = torch.ones(2, 3, device="npu"), torch.tensor([1, 0], device="npu")
    nn.functional.cross_entropy(logits, tokens)
    with pytest.raises(RuntimeError, match="expected target dtype to be Long or Byte, but got Int"):
        nn.functional.cross_entropy(logits, tokens.to(torch.int32))


@pytest.mark.parametrize(
    "call",
    [
        "torch.cuda.empty_cache()",
        "torch.cuda.synchronize()",
        "torch.cuda.memory_allocated()",
        "torch.cuda.max_memory_allocated()",
        "torch.cuda.reset_peak_memory_stats()",
        "torch.cuda.manual_seed_all(1)",
        "torch.cuda.set_device(0)",
        "torch.cuda.current_device()",
        "torch.cuda.get_rng_state()",
        "torch.cuda.mem_get_info()",
        "torch.ones(1).cuda()",
        "torch.ones(1, device='cuda')",
        "torch.autocast('cuda', dtype=torch.bfloat16).__enter__()",
        "torch.cuda.Event().record()",
    ],
)
def test_a_call_for_another_vendors_device_is_an_error(call: str) -> None:
    with pytest.raises((RuntimeError, AssertionError, AttributeError, UserWarning)):
        exec(call, {"torch": torch, "__name__": "roll_somewhere"})


def test_torchs_own_questions_about_other_vendors_go_through() -> None:
    torch.manual_seed(1)
    assert torch.cuda.is_available() is False and torch.cuda.device_count() == 0


def test_the_platform_says_what_the_device_says() -> None:
    platform = NpuPlatform()
    platform.setup()
    assert platform.device_count() == torch.npu.device_count() == 8
    assert torch.ones(2, device=platform.device(3)).get_device() == 3
    before = platform.memory()
    tensor = torch.ones(1 << 18, device=platform.device(0))
    after = platform.memory()
    assert after.allocated - before.allocated == tensor.nbytes and after.peak >= after.allocated
    assert after.total == torch.npu.mem_get_info()[1]
    del tensor
    platform.empty_cache()
    assert platform.memory().reserved == platform.memory().allocated


def test_devices_are_paired_by_the_id_that_every_process_sees() -> None:
    code = "from roll_ascend.platform import NpuPlatform as P; p = P(); p.setup(); print(p.device_uid(1))"
    assert child(code, **FOUR) == "5"
