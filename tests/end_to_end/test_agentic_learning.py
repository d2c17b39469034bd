"""The agentic examples learn what their READMEs say, on processors, on simulated NPUs and with vLLM's engines."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from roll_core.inference.vllm import installed
from tests.end_to_end.runs import learnt
from tests.inference.vllm_engines import NOT_INSTALLED
from tests.simulated_npu.machine import environment

LAKE, CALCULATOR = "agentic_frozen_lake", "agentic_calculator"
VLLM = "actor_infer.strategy_args.strategy_name=vllm"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
needs_vllm = pytest.mark.skipif(installed.folder() is None, reason=NOT_INSTALLED)


def assert_learns(folder: Path, example: str, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """Run an example with seed 0, want the success to double and to reach 60 %; returns all that was printed."""
    before, after, output = learnt(folder, example, "--seed", "0", *arguments, environ=environ)
    assert after >= 0.60 and after >= 2 * before, output.splitlines()[-1]
    return output


def test_the_frozen_lake_is_crossed_episode_by_episode(tmp_path: Path) -> None:
    assert_learns(tmp_path, LAKE)


def test_the_frozen_lake_is_crossed_step_by_step(tmp_path: Path) -> None:
    assert_learns(tmp_path, LAKE, "--by-steps")


def test_the_calculator_is_used(tmp_path: Path) -> None:
    assert_learns(tmp_path, CALCULATOR)


@pytest.mark.parametrize("example", [LAKE, CALCULATOR])
def test_agents_learn_on_simulated_npus(tmp_path: Path, example: str) -> None:
    output = assert_learns(tmp_path, example, "platform=npu", environ=environment("1"))
    assert "torch_npu counts 1 devices" in output


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("example", [LAKE, CALCULATOR])
def test_agents_learn_with_engines_of_vllm(tmp_path: Path, example: str) -> None:
    assert_learns(tmp_path, example, VLLM)
