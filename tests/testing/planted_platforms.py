"""Platforms that do one thing wrong."""

import os
from typing import Any

from roll_demo.platform import DemoPlatform

from roll_core.errors import Problem
from roll_core.findings import Finding, KnownError, Level
from roll_core.platforms import Memory
from roll_core.testing.platform_contract import PlatformContract
from tests.testing.planted_registry import planted

SHARED_ENV = {"OMP_NUM_THREADS": "1"}


@planted("devices counted as processors", PlatformContract, "test_the_ray_resource_counts_its_devices")
class WrongResource(DemoPlatform):
    ray_resource = "CPU"


@planted("a resource spelt in another way", PlatformContract, "test_the_ray_resource_counts_its_devices")
class ResourceInSmallLetters(DemoPlatform):
    ray_resource = "Demo"


@planted("a resource that Ray does not count", PlatformContract, "test_the_ray_resource_counts_its_devices")
class ResourceOfAnotherVendor(DemoPlatform):
    visible_devices_env = "TPU_VISIBLE_CHIPS"


@planted("a name that is not the one offered", PlatformContract, "test_facts_are_well_formed", backend="demo")
class OtherName(DemoPlatform):
    name = "demonstration"


@planted("attention as text", PlatformContract, "test_facts_are_well_formed")
class AttentionAsText(DemoPlatform):
    attention = "sdpa"  # type: ignore[assignment]


@planted("visible ids put in order", PlatformContract, "test_visible_devices_come_back_in_order")
class SortedIds(DemoPlatform):
    def visible(self, ids: Any) -> dict[str, str]:
        return super().visible(sorted(ids))


@planted("visible ids read as numbers", PlatformContract, "test_visible_devices_come_back_in_order")
class NumberedIds(DemoPlatform):
    def visible_ids(self, environ: Any = None) -> Any:
        found = super().visible_ids(environ)
        return found and [int(one) if one.isdecimal() else 0 for one in found]


@planted("Ray left free to change what is visible", PlatformContract, "test_visible_devices_come_back_in_order")
class WithoutNoset(DemoPlatform):
    def visible(self, ids: Any) -> dict[str, str]:
        return {self.visible_devices_env: ",".join(ids)}


@planted("an environment that is not text", PlatformContract, "test_the_environment_of_workers_is_text")
class NumbersInEnv(DemoPlatform):
    def worker_env(self, role: str) -> Any:
        return {"OMP_NUM_THREADS": 1}


@planted("visible devices set for every worker", PlatformContract, "test_the_environment_of_workers_is_text")
class VisibleInEnv(DemoPlatform):
    def worker_env(self, role: str) -> dict[str, str]:
        return {"DEMO_VISIBLE_DEVICES": "0"}


@planted("one environment shared by all who ask", PlatformContract, "test_the_environment_of_workers_is_text")
class SharedEnv(DemoPlatform):
    def worker_env(self, role: str) -> dict[str, str]:
        return SHARED_ENV


@planted("the driver's own environment changed", PlatformContract, "test_the_environment_of_workers_is_text")
class ChangesEnviron(DemoPlatform):
    def worker_env(self, role: str) -> dict[str, str]:
        os.environ["DEMO_ROLE"] = role
        return {}


@planted("engine defaults as a dict", PlatformContract, "test_engine_defaults_are_well_formed")
class DictDefaults(DemoPlatform):
    def engine_defaults(self, engine: str) -> Any:
        return {"enforce_eager": True}


@planted("a config that is mended", PlatformContract, "test_problems_are_sentences_and_leave_the_config_alone")
class MendsConfig(DemoPlatform):
    def problems(self, config: Any) -> list[Problem]:
        config.actor_train.strategy_args.strategy_config["offload_policy"] = True
        return []


@planted("problems as text", PlatformContract, "test_problems_are_sentences_and_leave_the_config_alone")
class TextProblems(DemoPlatform):
    def problems(self, config: Any) -> Any:
        return ["no demo device does this"]


@planted("a finding without a remedy", PlatformContract, "test_findings_say_what_to_do")
class NoRemedy(DemoPlatform):
    def findings(self) -> list[Finding]:
        return [Finding(Level.WARNING, "demo devices", "there are none")]


@planted("a known error that shows in any text", PlatformContract, "test_known_errors_explain_something")
class ExplainsAll(DemoPlatform):
    def known_errors(self) -> list[KnownError]:
        return [KnownError((".*",), "something", "anything")]


@planted("abilities as a list", PlatformContract, "test_abilities_are_a_set_of_abilities")
class ListOfAbilities(DemoPlatform):
    def abilities(self) -> Any:
        return list(super().abilities())


@planted("the limit of visible devices ignored", PlatformContract, "test_a_worker_sees_the_device_it_was_shown")
class CountsAll(DemoPlatform):
    def device_count(self) -> int:
        return int(os.environ["DEMO_DEVICES"])


@planted("an identity by logical index", PlatformContract, "test_a_worker_sees_the_device_it_was_shown")
class LogicalIdentity(DemoPlatform):
    def device_uid(self, index: int = 0) -> str:
        return f"demo-{index}"


@planted("one identity for all devices", PlatformContract, "test_identities_tell_devices_apart")
class OneIdentity(DemoPlatform):
    def device_uid(self, index: int = 0) -> str:
        return "demo"


@planted("a device of another type", PlatformContract, "test_a_device_is_named_by_its_logical_index")
class AnotherDevice(DemoPlatform):
    def device(self, index: int = 0) -> Any:
        import torch

        return torch.device("meta", index)


@planted("memory figures that stand still", PlatformContract, "test_memory_figures_move")
class StillMemory(DemoPlatform):
    def memory(self) -> Memory:
        return Memory(2**20, 2**20, 2**20, 2**30)
