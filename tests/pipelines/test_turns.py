"""Who makes room on shared devices, and in which order; workers are replaced by a list of what they were asked."""

from collections.abc import Sequence
from typing import Any

import pytest

from roll_core.config.schema import RLVRConfig
from roll_core.errors import RollError
from roll_core.pipelines.turns import DeviceTurns
from roll_core.platforms import Ability
from roll_core.platforms.cpu import CpuPlatform


class Sleeper(CpuPlatform):
    def abilities(self) -> frozenset[Ability]:
        return super().abilities() | {Ability.SLEEP}


class Group:
    def __init__(self, role: str, asked: list[str]) -> None:
        self.role, self.asked = role, asked

    def submit(self, method: str) -> list[Any]:
        self.asked.append(f"{self.role} {method}")
        return []


class Nothing:
    def wait(self, calls: list[Any]) -> None:
        assert calls == []


STEP = ("begin_update", "begin_generation", "begin_training")


def asked_of(
    platform: CpuPlatform, engine_devices: list[int], phases: Sequence[str] = STEP, ratio: float = 0
) -> list[str]:
    config = RLVRConfig.model_validate(
        {
            "async_generation_ratio": ratio,
            "adv_estimator": "grpo",
            "actor_train": {"device_mapping": [0, 1]},
            "reference": {"device_mapping": [4, 5]},
            "actor_infer": {"device_mapping": engine_devices},
        }
    )
    asked: list[str] = []
    trainers: list[Any] = [Group("actor_train", asked), Group("reference", asked)]
    engines: Any = Group("actor_infer", asked)
    waiter: Any = Nothing()
    turns = DeviceTurns(config, platform, trainers, engines, waiter)
    for phase in phases:
        getattr(turns, phase)()
    return asked


def test_only_roles_on_the_engines_devices_take_turns() -> None:
    assert asked_of(Sleeper(), [1, 2], STEP * 2) == [
        "actor_train offload",
        "actor_infer sleep",
        "actor_train reload",
        "actor_infer wake",
        "actor_train offload",
        "actor_infer sleep",
        "actor_train reload",
    ]


def test_nobody_is_moved_who_is_there_already() -> None:
    twice = ["begin_update", "begin_generation", "begin_generation", "begin_training", "begin_training"]
    assert asked_of(Sleeper(), [1, 2], twice) == ["actor_train offload", "actor_infer sleep", "actor_train reload"]


def test_trainers_leave_before_engines_come_where_no_weights_are_sent() -> None:
    phases = ["begin_generation", "begin_training", "begin_generation"]
    assert asked_of(Sleeper(), [1, 2], phases)[-2:] == ["actor_train offload", "actor_infer wake"]


@pytest.mark.parametrize(("platform", "devices"), [(Sleeper(), [2, 3]), (CpuPlatform(), [0, 1])])
def test_nobody_moves_where_no_device_with_memory_is_shared(platform: CpuPlatform, devices: list[int]) -> None:
    assert asked_of(platform, devices) == []


def test_engines_that_never_stop_need_devices_of_their_own() -> None:
    with pytest.raises(
        RollError,
        match=r"actor_train shares devices with actor_infer(.|\n)*async_generation_ratio 1 never stops(.|\n)*\[1, 2\]",
    ):
        asked_of(Sleeper(), [1, 2], ratio=1)
    assert asked_of(Sleeper(), [2, 3], ratio=1) == []
    assert asked_of(CpuPlatform(), [1, 2], ratio=1) == []
