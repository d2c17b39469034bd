"""What goes wrong with sglang's engine and its updates, over the stand-in for SGLang."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from roll_core.errors import EngineFailed, IllegalOrder, WeightSyncError
from roll_core.inference import EngineState, GenerationRequest, SamplingParams
from roll_core.inference.sglang.loader import REPORT, load
from roll_core.inference.sglang.requests import output_of, sampling_of
from roll_core.inference.sglang.strategy import SglangStrategy
from roll_core.platforms import Ability
from roll_core.platforms.cpu import CpuPlatform
from tests.inference.models import ListReceiver, reference, request, save_model
from tests.inference.sglang_engines import make_sglang, plant


class Sleeper(CpuPlatform):
    """A platform whose engines can give their memory back."""

    def abilities(self) -> frozenset[Ability]:
        return super().abilities() | {Ability.SLEEP}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SglangStrategy]]:
    plant(monkeypatch, tmp_path)
    started: list[SglangStrategy] = []

    def start_engine(fault: str = "", **options: Any) -> SglangStrategy:
        folder = save_model(tmp_path / "model", "qwen2")
        (folder / "fault").write_text(fault)
        started.append(make_sglang(folder, **options))
        started[-1].start()
        return started[-1]

    yield start_engine
    for engine in started:
        engine.stop()


def weights_of(engine: SglangStrategy, version: int = 1) -> ListReceiver:
    return ListReceiver(dict(reference(Path(engine.facts.path)).state_dict()), version)


def test_an_update_that_a_rank_did_not_take_whole_is_noticed_and_the_next_one_mends_it(
    start: Callable[..., SglangStrategy],
) -> None:
    engine = start(devices=2, tensor_parallel_size=2)
    fault = Path(engine.facts.path) / "fault"
    fault.write_text("lazy rank")
    with pytest.raises(WeightSyncError, match="did not arrive as announced on a rank"):
        engine.update_weights(weights_of(engine))
    fault.write_text("skips norm")
    with pytest.raises(WeightSyncError) as caught:
        engine.update_weights(weights_of(engine))
    assert str(caught.value) == (
        "SGLang left parameters at their old values, though version 1 came whole\n  on a rank: inner.model.norm.weight"
    )
    assert engine.lifecycle.state is EngineState.EMPTY
    with pytest.raises(IllegalOrder):
        list(engine.generate([request((1, 2, 3))]))
    fault.write_text("")
    receiver = weights_of(engine, version=2)
    assert engine.update_weights(receiver) == receiver.manifest.digest
    assert [one.weight_version for one in engine.generate([request((1, 2, 3))])] == [2]


def test_an_engine_that_does_not_start_says_why_and_leaves_no_process(start: Callable[..., SglangStrategy]) -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(EngineFailed) as caught:
        start("refuses to start")
    assert str(caught.value) == (
        "SGLang's engine did not start\n  cause: RuntimeError: no kernels for this device\n"
        "  SGLang's own report: in the log of actor_infer-0"
    )
    assert set(psutil.Process().children(recursive=True)) <= before


def test_ids_that_begin_alike_sleep_and_stop(start: Callable[..., SglangStrategy]) -> None:
    engine = start(platform=Sleeper(), sleep_level=2)
    results = engine.generate([request((1, 2), name, max_new_tokens=200) for name in ("r1", "r10", "r11")])
    assert engine.abort(["r1"]) == ["r1"], "SGLang aborts every request whose id begins with the one it is told"
    found = {one.request_id: one.finish_reason for one in results}
    assert found == {"r1": "abort", "r10": "length", "r11": "length"}
    engine.sleep()
    assert engine.lifecycle.state is EngineState.ASLEEP
    engine.wake()
    assert engine.lifecycle.state is EngineState.EMPTY
    engine.update_weights(weights_of(engine))
    processes = [psutil.Process(engine.engine.process.pid)]
    processes += processes[0].children(recursive=True)
    assert len(processes) > 1
    results = engine.generate([request((1, 2, 3), max_new_tokens=200)])
    engine.stop()
    assert [one.finish_reason for one in results] == ["abort"]
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_sampling_in_sglangs_words() -> None:
    params = SamplingParams(5, 0.7, top_p=0.9, stop=("end",), stop_token_ids=(7, 3))
    assert sampling_of(GenerationRequest("r", (1,), params, seed=2**63 + 5), eos_ids=(9,)) == {
        "max_new_tokens": 5,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": -1,
        "sampling_seed": 5,
        "stop": ["end"],
        "stop_token_ids": [3, 7, 9],
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }


def test_an_output_without_its_log_probs_is_an_error() -> None:
    about = {"finish_reason": {"type": "length", "length": 2}, "output_token_logprobs": [(-0.5, 4, None)]}
    with pytest.raises(ValueError, match="gave 2 tokens, and log-probs of 1"):
        output_of("0", {"output_ids": [4, 5], "meta_info": about})
    whole = output_of("0", {"output_ids": [4], "meta_info": about})
    assert (whole.token_ids, whole.log_probs, whole.finish_type) == ((4,), (-0.5,), "length")
    waiting = {"output_ids": [], "meta_info": {"finish_reason": {"type": "abort", "message": "Abort in waiting queue"}}}
    assert output_of("0", waiting).finish_type == "abort"


def test_the_loader_tells_what_was_written_through_slices_and_ties(tmp_path: Path) -> None:
    class Fused(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.joined, self.alone = torch.nn.Parameter(torch.zeros(4, 2)), torch.nn.Parameter(torch.zeros(3))
            self.tied = self.joined

        def load_weights(self, weights: Any) -> None:
            for name, tensor in weights:
                if name == "second":
                    self.joined.data[2:].copy_(tensor)

    model = Fused()
    load(model, [("second", torch.ones(2, 2)), ("stranger", torch.ones(1))])
    folder = torch.tensor(list(str(tmp_path).encode()), dtype=torch.uint8)
    for expected in ('{"taken": [["second", [2, 2]], ["stranger", [1]]], "left_out": ["alone"]}', None):
        load(model, [(REPORT, folder)])
        [report] = tmp_path.iterdir()
        assert report.read_text() == (expected or '{"taken": [], "left_out": ["alone", "joined"]}')
