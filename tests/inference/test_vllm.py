"""What is vLLM's alone, on the real engine: ranks that work together, prompts too long for a pass, faults inside."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from roll_core.errors import ConfigError, EngineFailed, IllegalOrder, WeightSyncError
from roll_core.inference import InferStrategy
from roll_core.inference.vllm import config, installed
from roll_core.inference.vllm.strategy import VllmStrategy
from tests.inference.models import ListReceiver, by_id, prompts_of, reference, request, save_model
from tests.inference.vllm_engines import NOT_INSTALLED, make_vllm

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(installed.folder() is None, reason=NOT_INSTALLED),
]
HEADS = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "max_position_embeddings": 512}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models whose output layer is not the embedding, which the contract's is."""
    first, second = (save_model(tmp_path_factory.mktemp("untied"), "qwen3", seed, **HEADS) for seed in range(2))
    return first, second


@pytest.fixture(scope="module")
def pair(folders: tuple[Path, Path]) -> Iterator[VllmStrategy]:
    """One engine of two ranks, in which faults can be planted."""
    engine = make_vllm(folders[0], devices=2, tensor_parallel_size=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "EXTENSION", "tests.inference.vllm_engines.FaultyExtension")
        engine.start()
    yield engine
    engine.stop()


def weights_of(folder: Path, version: int) -> ListReceiver:
    return ListReceiver(dict(reference(folder).state_dict()), version)


def greedy(engine: InferStrategy, prompts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    requests = [request(p, str(i), temperature=0.0, max_new_tokens=16) for i, p in enumerate(prompts)]
    found = by_id(engine.generate(requests))
    return [found[str(index)].token_ids for index in range(len(prompts))]


def transformers_greedy(folder: Path, prompts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    model, found = reference(folder), []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        options = {"do_sample": False, "max_new_tokens": 16, "pad_token_id": 0}
        whole = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        found.append(tuple(whole[0, len(prompt) :].tolist()))
    return found


def test_two_ranks_compute_what_transformers_does_and_take_updates_together(
    pair: VllmStrategy, folders: tuple[Path, Path]
) -> None:
    prompts = prompts_of(5, 33, 120)
    assert pair.num_workers == 2
    assert greedy(pair, prompts) == transformers_greedy(folders[0], prompts)
    receiver = weights_of(folders[1], 7)
    assert pair.update_weights(receiver) == receiver.manifest.digest
    assert greedy(pair, prompts) == transformers_greedy(folders[1], prompts)


def test_seeded_prompts_that_do_not_fit_one_pass_are_served(pair: VllmStrategy) -> None:
    prompts = prompts_of(*[300] * 12)
    requests = [request(p, str(i), seed=i, max_new_tokens=12) for i, p in enumerate(prompts)]
    assert {len(completion.token_ids) for completion in pair.generate(requests)} == {12}


def test_a_temperature_that_vllm_would_change_is_refused(pair: VllmStrategy) -> None:
    with pytest.raises(Exception, match=r"allowed by vLLM: 0, or 0\.01 and more"):
        pair.generate([request((1, 2), temperature=0.001)])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("lazy", "did not arrive as announced on rank 1 of the engine"),
        ("forgetful", r"left parameters at their old values.*\n  on rank 0: model\.norm\.weight"),
    ],
)
def test_weights_that_stay_old_inside_the_engine_are_noticed_and_a_whole_update_mends_it(
    pair: VllmStrategy, folders: tuple[Path, Path], fault: str, message: str
) -> None:
    file = folders[0] / "fault"
    file.write_text(fault)
    with pytest.raises(WeightSyncError, match=message):
        pair.update_weights(weights_of(folders[1], 8))
    file.unlink()
    with pytest.raises(IllegalOrder, match="without weights"):
        pair.generate([request((1, 2))])
    pair.update_weights(weights_of(folders[0], 9))
    prompts = prompts_of(5, 33)
    assert greedy(pair, prompts) == transformers_greedy(folders[0], prompts)


def test_a_storm_of_aborts_leaves_nothing_hanging_and_ends_every_request_once(pair: VllmStrategy) -> None:
    chance = random.Random(0)
    for turn in range(10):
        requests = [request((1 + i % 90, 2), f"{turn}/{i}", seed=i, max_new_tokens=60) for i in range(100)]
        doomed = chance.sample([one.request_id for one in requests], 50)
        results = pair.generate(requests)
        reported: list[str] = []
        for start in range(0, 50, 10):
            time.sleep(chance.random() * 0.05)
            reported += pair.abort(doomed[start : start + 10])
        found = by_id(results)
        assert sorted(found) == sorted(one.request_id for one in requests)
        assert {name for name, one in found.items() if one.finish_reason == "abort"} == set(reported)
        assert set(reported) <= set(doomed)
    assert pair.abort() == []


def test_a_worker_that_dies_during_an_update_fails_it_with_the_cause(
    pair: VllmStrategy, folders: tuple[Path, Path]
) -> None:
    """The last test of this engine."""
    [core] = pair.engine.processes
    assert core.pid is not None
    children = psutil.Process(core.pid).children(recursive=True)

    class Murderous(ListReceiver):
        def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
            for index, bucket in enumerate(super().receive()):
                if index == 2:
                    for child in children:
                        child.kill()
                yield bucket

    began = time.monotonic()
    with pytest.raises(EngineFailed, match=r"cause: (.|\n)*vLLM's own report: in the log of actor_infer-0"):
        pair.update_weights(Murderous(dict(reference(folders[1]).state_dict())))
    assert time.monotonic() - began < 60
    with pytest.raises((EngineFailed, IllegalOrder)):
        list(pair.generate([request((1, 2))]))


def test_the_engines_processes_end_when_their_owner_is_killed(folders: tuple[Path, Path]) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.inference.vllm_engines", str(folders[0])], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert "started" in (line.strip() for line in owner.stdout)
    children = psutil.Process(owner.pid).children(recursive=True)
    assert len(children) >= 2
    owner.kill()
    owner.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []


def test_an_engine_that_cannot_start_says_why(folders: tuple[Path, Path]) -> None:
    engine = make_vllm(folders[0], max_model_len=100_000)
    with pytest.raises(EngineFailed, match=r"did not start\n  cause: (.|\n)*max_model_len"):
        engine.start()
    with pytest.raises(ConfigError, match="did you mean 'max_num_seqs'"):
        make_vllm(folders[0], max_num_seq=3).start()
