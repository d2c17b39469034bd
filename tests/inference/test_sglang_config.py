"""How sglang's arguments are put together and checked, with the stand-in's source for the installed package's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from roll_core.config.schema import WorkerConfig
from roll_core.inference.sglang import installed
from roll_core.inference.sglang.config import LOADER, engine_arguments
from roll_core.inference.sglang.strategy import SglangStrategy
from roll_core.platforms import Ability, EngineDefaults, Platform
from roll_core.platforms.cpu import CpuPlatform
from tests.inference.sglang_engines import plant, sglang_role
from tests.inference.test_sglang import Sleeper

WHERE = "strategy_args.strategy_config"


class Board(Sleeper):
    def engine_defaults(self, engine: str) -> EngineDefaults:
        return EngineDefaults({"mem_fraction_static": 0.5, "random_seed": 9} if engine == "sglang" else {})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda version: plant(monkeypatch, tmp_path, version)


def said(role: WorkerConfig, platform: Platform | None = None) -> list[str]:
    return [str(problem) for problem in SglangStrategy.problems(role, platform or CpuPlatform())]


def test_arguments_and_version_are_read_without_an_import(package: Callable[[str], None]) -> None:
    package("0.5.23")
    assert installed.version() == "0.5.23"
    names = installed.argument_names()
    assert {"model_path", "tp_size", "mem_fraction_static", "custom_weight_loader"} <= names
    assert not {"_NS_PATH", "stranger"} & names


def test_where_the_engine_is_not_installed_nothing_is_said_of_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "folder", lambda: None)
    monkeypatch.setattr(installed, "version", lambda: None)
    assert installed.argument_names() == frozenset()
    assert said(sglang_role(Path("model"), anything=1)) == []


def test_an_argument_that_the_engine_does_not_have_gets_the_nearest_one(package: Callable[[str], None]) -> None:
    package("0.5.23")
    assert said(sglang_role(Path("model"), mem_fraction_statik=0.5, stranger=2)) == [
        f"{WHERE}.mem_fraction_statik: sglang 0.5.23 has no such engine argument\n"
        "    given: 0.5\n    try:   did you mean 'mem_fraction_static'?",
        f"{WHERE}.stranger: sglang 0.5.23 has no such engine argument\n"
        "    given: 2\n    try:   the fields of sglang.srt.server_args.ServerArgs",
    ]


def test_arguments_that_the_strategy_sets_are_not_the_users(package: Callable[[str], None]) -> None:
    package("0.5.23")
    assert said(sglang_role(Path("model"), tp_size=2)) == [
        f"{WHERE}.tp_size: is set by the strategy: it is written tensor_parallel_size here, from which the engine's "
        "number of devices follows\n    given: 2\n    try:   leave the key out"
    ]


@pytest.mark.parametrize("version", ["0.5.23", "0.5.23.post1", "0.5.30"])
def test_versions_in_the_range_are_taken(package: Callable[[str], None], version: str) -> None:
    package(version)
    assert said(sglang_role(Path("model"))) == []


@pytest.mark.parametrize("version", ["0.4.9", "0.5.22", "0.6.0"])
def test_versions_outside_the_range_are_refused(package: Callable[[str], None], version: str) -> None:
    package(version)
    assert said(sglang_role(Path("model"))) == [
        f"strategy_args.strategy_name: sglang {version} is installed, and this strategy works with "
        "sglang>=0.5.23,<0.6\n    given: 'sglang'\n    try:   pip install \"sglang>=0.5.23,<0.6\""
    ]


def test_what_a_platform_cannot_do_is_told(package: Callable[[str], None]) -> None:
    package("0.5.23")
    role = sglang_role(Path("model"), enable_memory_saver=True)
    assert said(role) == [
        f"{WHERE}.enable_memory_saver: platform 'cpu' cannot {Ability.SLEEP.value}\n"
        "    given: True\n    try:   leave the key out"
    ]
    assert said(role, Sleeper()) == []
    role = sglang_role(Path("model"), devices=2, tensor_parallel_size=2)
    assert said(role) == []
    assert said(role.model_copy(update={"num_gpus_per_worker": 1})) == [
        "num_gpus_per_worker: must be tensor_parallel_size 2 x pipeline_parallel_size 1\n"
        "    given: 1\n    try:   leave the key out"
    ]


def test_the_users_arguments_stand_above_the_platforms_and_ours_above_both(tmp_path: Path) -> None:
    role = sglang_role(tmp_path, devices=2, tensor_parallel_size=2, mem_fraction_static=0.7)
    assert engine_arguments(role, Board(), seed=3) == {
        "model_path": str(tmp_path),
        "dtype": "float32",
        "random_seed": 9,
        "mem_fraction_static": 0.7,
        "enable_deterministic_inference": True,
        "enable_memory_saver": True,
        "enable_weights_cpu_backup": True,
        "load_format": "auto",
        "tp_size": 2,
        "pp_size": 1,
        "custom_weight_loader": [LOADER],
        "skip_tokenizer_init": True,
    }
