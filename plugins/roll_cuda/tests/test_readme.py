"""The README's table of variables is what workers get."""

from pathlib import Path

import pytest
from roll_cuda.cuda import CudaPlatform
from roll_cuda.rocm import RocmPlatform

from roll_core.platforms import Platform

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("platform", [CudaPlatform(), RocmPlatform()])
def test_every_variable_that_is_set_is_in_the_table(platform: Platform) -> None:
    names = {*platform.worker_env("actor_train"), *platform.worker_env("actor_infer")}
    names |= set(platform.engine_defaults("vllm").env)
    for name in names:
        [row] = [line for line in README.splitlines() if line.startswith("| `") and f"`{name}`" in line.split("|")[1]]
        assert f"`{platform.name}`" in row or "| both |" in row


def test_every_file_is_in_the_map() -> None:
    package = Path(__file__).parents[1] / "roll_cuda"
    names = [path.name for path in package.glob("[a-z]*.py")]
    assert [name for name in names if f"`roll_cuda/{name}`" not in README] == []
