"""How vllm's arguments are put together and checked; a folder stands for the package, which is not needed here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from roll_core.config.schema import WorkerConfig
from roll_core.inference.vllm import installed
from roll_core.inference.vllm.config import EXTENSION, engine_arguments
from roll_core.inference.vllm.strategy import VllmStrategy
from roll_core.platforms import Ability, EngineDefaults, Platform
from roll_core.platforms.cpu import CpuPlatform
from tests.inference.vllm_engines import vllm_role

ARGUMENTS = """
class EngineArgs:
    model: str = ""
    max_model_len: int = 0
    gpu_memory_utilization: float = 0.9
    enable_sleep_mode: bool = False
    tensor_parallel_size: int = 1
    def __post_init__(self): ...
class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
class Other:
    stranger: int = 0
"""


class Board(Platform):
    name: ClassVar[str] = "board"
    device_type: ClassVar[str] = "board"
    ray_resource: ClassVar[str] = "BOARD"
    collective_backend: ClassVar[str] = "gloo"

    def abilities(self) -> frozenset[Ability]:
        return frozenset({Ability.SLEEP, Ability.BF16})

    def engine_defaults(self, engine: str) -> EngineDefaults:
        return EngineDefaults({"block_size": 128, "seed": 9})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def make(version: str) -> Path:
        folder = tmp_path / version
        (folder / "engine").mkdir(parents=True)
        (folder / "_version.py").write_text(f"__version__ = version = '{version}'\n")
        (folder / "engine" / "arg_utils.py").write_text(ARGUMENTS)
        monkeypatch.setattr(installed, "folder", lambda: folder)
        return folder

    return make


def said(role: WorkerConfig, platform: Platform | None = None) -> list[str]:
    return [str(problem) for problem in VllmStrategy.problems(role, platform or CpuPlatform())]


def test_the_arguments_are_read_from_the_installed_engines_source(package: Callable[[str], Path]) -> None:
    package("0.32.0")
    assert installed.version() == "0.32.0"
    names = {"model", "max_model_len", "gpu_memory_utilization", "enable_sleep_mode", "tensor_parallel_size"}
    assert installed.argument_names() == names | {"enable_log_requests"}


def test_where_the_engine_is_not_installed_nothing_is_said_of_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "folder", lambda: None)
    assert (installed.version(), installed.argument_names()) == (None, frozenset())
    assert said(vllm_role(Path("model"), anything=1)) == []


def test_an_argument_that_the_engine_does_not_have_gets_the_nearest_one(package: Callable[[str], Path]) -> None:
    package("0.32.0")
    assert said(vllm_role(Path("model"), gpu_memory_utilisation=0.5, VLLM_USE_V1=1, stranger=2)) == [
        "strategy_args.strategy_config.gpu_memory_utilisation: vllm 0.32.0 has no such engine argument\n"
        "    given: 0.5\n    try:   did you mean 'gpu_memory_utilization'?",
        "strategy_args.strategy_config.stranger: vllm 0.32.0 has no such engine argument\n"
        "    given: 2\n    try:   the fields of vllm.EngineArgs",
    ]


def test_arguments_that_the_strategy_sets_are_not_the_users(package: Callable[[str], Path]) -> None:
    package("0.32.0")
    assert said(vllm_role(Path("model"), logprobs_mode="raw_logprobs")) == [
        "strategy_args.strategy_config.logprobs_mode: is set by the strategy: training needs the log-probs of what was "
        "sampled, at the temperature it was sampled at\n    given: 'raw_logprobs'\n    try:   leave the key out"
    ]


@pytest.mark.parametrize("version", ["0.23.0", "0.27.1", "0.32.0", "0.32.1.dev3"])
def test_versions_in_the_range_are_taken(package: Callable[[str], Path], version: str) -> None:
    package(version)
    assert said(vllm_role(Path("model"))) == []


@pytest.mark.parametrize("version", ["0.8.5", "0.22.9", "0.33.0", "1.0.0"])
def test_versions_outside_the_range_are_refused(package: Callable[[str], Path], version: str) -> None:
    package(version)
    assert said(vllm_role(Path("model"))) == [
        f"strategy_args.strategy_name: vllm {version} is installed, and this strategy works with vllm>=0.23,<0.33\n"
        "    given: 'vllm'\n    try:   pip install \"vllm>=0.23,<0.33\""
    ]


def test_sleep_is_asked_for_only_where_the_platform_can(package: Callable[[str], Path]) -> None:
    package("0.32.0")
    role = vllm_role(Path("model"), enable_sleep_mode=True)
    assert said(role) == [
        "strategy_args.strategy_config.enable_sleep_mode: platform 'cpu' cannot free an engine's device memory and "
        "restore it\n    given: True\n    try:   leave the key out"
    ]
    assert said(role, Board()) == []


def test_precision_and_adapters_are_checked(package: Callable[[str], Path]) -> None:
    package("0.32.0")
    role = vllm_role(Path("model"), dtype="fp16").model_copy(update={"device_mapping": None})
    assert said(role, Board()) == [
        "model_args.dtype: platform 'board' does not compute in float16\n    given: 'fp16'\n    try:   fp32"
    ]
    changed = role.model_args.model_copy(update={"dtype": "bf16", "lora_target": "all-linear"})
    assert said(role.model_copy(update={"model_args": changed}), Board()) == [
        "model_args.lora_target: vllm serves whole models here, not adapters\n"
        "    given: 'all-linear'\n    try:   leave the key out"
    ]


def test_the_devices_of_an_engine_are_those_its_sizes_need(package: Callable[[str], Path]) -> None:
    package("0.32.0")
    role = vllm_role(Path("model"), devices=2, tensor_parallel_size=2)
    assert role.num_gpus_per_worker == 2 and said(role) == []
    assert said(role.model_copy(update={"num_gpus_per_worker": 1})) == [
        "num_gpus_per_worker: must be tensor_parallel_size 2 x pipeline_parallel_size 1\n"
        "    given: 1\n    try:   leave the key out"
    ]


def test_the_users_arguments_stand_above_the_platforms_and_ours_above_both(tmp_path: Path) -> None:
    arguments = engine_arguments(vllm_role(tmp_path, block_size=32, max_num_seqs=8, VLLM_USE_V1=1), Board(), seed=3)
    assert arguments == {
        "model": str(tmp_path),
        "dtype": "float32",
        "seed": 9,
        "block_size": 32,
        "max_num_seqs": 8,
        "enable_sleep_mode": True,
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "load_format": "auto",
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": EXTENSION,
        "skip_tokenizer_init": True,
    }


def test_plain_processors_get_what_the_engine_needs_there(tmp_path: Path) -> None:
    arguments = engine_arguments(vllm_role(tmp_path, devices=2, tensor_parallel_size=2), CpuPlatform(), seed=3)
    expected: dict[str, Any] = {
        "seed": 3,
        "enforce_eager": True,
        "kv_cache_memory_bytes": 2**30,
        "enable_chunked_prefill": False,
        "tensor_parallel_size": 2,
        "distributed_executor_backend": "mp",
    }
    assert expected.items() <= arguments.items()
    assert "enable_sleep_mode" not in arguments
