"""The platform that every machine has."""

import torch

from roll_core.platforms import Ability
from roll_core.platforms.cpu import CpuPlatform

platform = CpuPlatform()


def test_facts() -> None:
    assert (platform.name, platform.device_type, platform.collective_backend) == ("cpu", "cpu", "gloo")
    assert platform.attention[0] == "sdpa"


def test_a_device_is_a_process_and_needs_nothing_of_ray() -> None:
    assert platform.ray_options(4) == {"num_cpus": 0}
    assert platform.visible(["0", "1"]) == {}
    assert platform.visible_ids() is None


def test_every_index_is_the_one_device() -> None:
    assert platform.device(3) == torch.device("cpu")
    assert platform.device_uid(0) == platform.device_uid(1)
    assert platform.device_count() >= 1


def test_each_worker_has_one_thread() -> None:
    assert platform.worker_env("actor_train")["OMP_NUM_THREADS"] == "1"


def test_memory_is_that_of_the_process() -> None:
    memory = platform.memory()
    assert 0 < memory.allocated < memory.total
    platform.empty_cache()


def test_there_is_no_device_memory_to_share() -> None:
    assert Ability.BF16 in platform.abilities()
    assert Ability.DEVICE_IPC not in platform.abilities()
