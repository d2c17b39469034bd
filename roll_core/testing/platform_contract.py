"""What every platform must keep, as tests to run on yours.

    class TestMyPlatform(PlatformContract):
        platform_class = MyPlatform

The first half needs no device and no torch. The rest runs where the platform has one, and is skipped elsewhere;
--roll-require-device makes that a failure.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from roll_core.backend import Availability
from roll_core.errors import Problem
from roll_core.findings import Finding, KnownError, Level
from roll_core.platforms import Ability, EngineDefaults, Platform
from roll_core.testing.contract import Contract, needs, skip_or_fail
from roll_core.testing.device_checks import run_ranks, shares_memory
from roll_core.testing.fresh import HEAVY, in_fresh_interpreter, tops
from roll_core.testing.sample_config import sample_config

FACTS = ("name", "device_type", "ray_resource", "visible_devices_env", "collective_backend")
ROLES = ("actor_train", "actor_infer", "critic", "reference", "reward")
ENGINES = ("vllm", "sglang", "hf_infer", "an_engine_of_tomorrow")
IDS: tuple[list[str], ...] = (["0"], ["7", "5"], ["10", "9", "1"], ["GPU-5f2a/3", "MIG-77"], [])
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RAYS_OWN = ("memory", "object_store_memory", "node:", "accelerator_type:", "bundle_group")


class PlatformContract(Contract):
    """Facts that can be read anywhere, environments that are text, and a device that does what it is asked."""

    platform_class: ClassVar[type[Platform]]
    num_ranks: ClassVar[int] = 2
    """Processes of the collective tests."""

    @property
    def platform(self) -> Platform:
        """A new instance; making one sets nothing up."""
        return type(self).platform_class()

    @classmethod
    def availability(cls) -> Availability:
        """Whether there is a device here. By default it is set up and counted, in a process of its own."""
        module, name = cls.platform_class.__module__, cls.platform_class.__qualname__
        try:
            count = in_fresh_interpreter(
                f"from {module} import {name} as P\nplatform = P()\nplatform.setup()\nresult = platform.device_count()"
            )
        except AssertionError as error:
            return Availability(False, str(error).splitlines()[-2].strip())
        return Availability(count > 0, f"{count} devices")

    def abilities(self) -> frozenset[Ability]:
        """What the platform claims."""
        return self.platform.abilities()

    @pytest.fixture(scope="class")
    @classmethod
    def _has_device(cls, request: pytest.FixtureRequest) -> None:
        here = cls.availability()
        if not here.ok:
            skip_or_fail(request.config, f"no device of '{cls.platform_class.name}' here: {here.reason}")

    @pytest.fixture
    def device(self, _has_device: None) -> Platform:
        """The platform where it has a device, set up."""
        platform = self.platform
        platform.setup()
        return platform

    def test_facts_can_be_read_without_torch(self) -> None:
        module, name = type(self).platform_class.__module__, type(self).platform_class.__qualname__
        new = in_fresh_interpreter(
            f"import sys\nfrom {module} import {name} as P\nplatform = P()\n"
            f"[getattr(P, fact) for fact in {(*FACTS, 'attention', 'visible_devices_aliases')!r}]\n"
            f"platform.ray_options(1), platform.visible(['0'])\n"
            f"[platform.worker_env(role) for role in {ROLES!r}]\n"
            f"[platform.engine_defaults(engine) for engine in {ENGINES!r}]\n"
            "platform.known_errors(), platform.findings()\nresult = sorted(sys.modules)"
        )
        heavy = sorted(tops(new) & HEAVY)
        assert not heavy, f"reading the facts and findings of {name} imports {', '.join(heavy)}"

    def test_facts_are_well_formed(self) -> None:
        given = type(self).platform_class
        for fact in FACTS:
            value = getattr(given, fact)
            assert isinstance(value, str), f"{given.__name__}.{fact} is {value!r}, not text"
            assert value or fact == "visible_devices_env", f"{given.__name__}.{fact} is empty"
        assert isinstance(given.attention, tuple) and given.attention, f"attention is {given.attention!r}, not a tuple"
        assert len(set(given.attention)) == len(given.attention), f"attention names one twice: {given.attention}"
        offered = self.backend or given.name
        assert offered == given.name, f"offered as '{offered}', but {given.__name__}.name is '{given.name}'"

    def test_the_ray_resource_counts_its_devices(self) -> None:
        given = type(self).platform_class
        resource, variable = given.ray_resource, given.visible_devices_env
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", resource), (
            f"the Ray resource '{resource}' is not in capitals, as those that Ray and operators count are"
        )
        assert not resource.lower().startswith(RAYS_OWN), f"the Ray resource '{resource}' means something else to Ray"
        if variable or given.device_type != "cpu":
            assert resource != "CPU", f"{given.__name__} has devices, and asks Ray for processors (ray_resource 'CPU')"
        known = _resources_of_ray().get(variable)
        assert known in (None, resource), (
            f"Ray counts the devices of {variable} as '{known}', {given.__name__} asks for '{resource}'"
        )
        asked = self.platform.ray_options(2)
        count = asked.get("num_gpus") if resource == "GPU" else asked.get("resources", {}).get(resource)
        assert (resource == "CPU" and count is None) or count == 2, f"ray_options(2) asks Ray for {asked}"

    @pytest.mark.parametrize("ids", IDS, ids=",".join)
    def test_visible_devices_come_back_in_order(self, ids: list[str]) -> None:
        given = type(self).platform_class
        if not given.visible_devices_env:
            pytest.skip(f"{given.__name__} has no variable that limits what is visible")
        shown = self.platform.visible(ids)
        assert all(isinstance(value, str) for value in shown.values()), f"visible({ids}) is not all text: {shown}"
        back = self.platform.visible_ids(shown)
        assert back == ids, f"visible({ids}) shows a worker {back}; ids are text, and their order is kept"
        for name in (given.visible_devices_env, *given.visible_devices_aliases):
            assert re.fullmatch(r"[A-Z][A-Z0-9_]*", name), f"'{name}' is no name of an environment variable"
            assert shown.get(name) == ",".join(ids), f"visible({ids}) leaves {name} at {shown.get(name)!r}"
            noset = f"RAY_EXPERIMENTAL_NOSET_{name}"
            assert shown.get(noset) == "1", f"visible() does not set {noset}, so Ray would change {name}"

    @pytest.mark.parametrize("role", ROLES)
    def test_the_environment_of_workers_is_text(self, role: str) -> None:
        with _same_environment(f"worker_env('{role}')"):
            given = self.platform.worker_env(role)
        _check_env(f"worker_env('{role}')", given)
        core_sets = {type(self).platform_class.visible_devices_env, *type(self).platform_class.visible_devices_aliases}
        assert not core_sets & given.keys(), f"worker_env sets {core_sets & given.keys()}; core does, per worker"
        kept = dict(given)
        given["ROLL_CONTRACT"] = "1"
        assert self.platform.worker_env(role) == kept, "a caller who changes worker_env changes it for the next one"

    @pytest.mark.parametrize("engine", ENGINES)
    def test_engine_defaults_are_well_formed(self, engine: str) -> None:
        title = f"engine_defaults('{engine}')"
        with _same_environment(title):
            given = self.platform.engine_defaults(engine)
        assert isinstance(given, EngineDefaults), f"{title} is a {type(given).__name__}, not EngineDefaults"
        _check_env(f"{title}.env", given.env)
        wrong = [name for name in given.args if not (isinstance(name, str) and name.isidentifier())]
        assert not wrong, f"{title}.args has keys that are no arguments: {wrong}"

    def test_problems_are_sentences_and_leave_the_config_alone(self) -> None:
        config = sample_config(type(self).platform_class.name)
        before = copy.deepcopy(config.model_dump())
        with _same_environment("problems()"):
            found = self.platform.problems(config)
        assert isinstance(found, list) and all(isinstance(one, Problem) for one in found), (
            f"problems() is {found!r}, not a list of Problem"
        )
        for problem in found:
            assert isinstance(problem.path, str) and problem.rule.strip(), f"a problem says nothing: {problem!r}"
        assert config.model_dump() == before, "problems() changed the config; what a user wrote is never overwritten"

    def test_findings_say_what_to_do(self) -> None:
        with _same_environment("findings()"):
            found = self.platform.findings()
        assert isinstance(found, list) and all(isinstance(one, Finding) for one in found), (
            f"findings() is {found!r}, not a list of Finding"
        )
        for one in found:
            assert isinstance(one.level, Level), f"the finding '{one.subject}' has the level {one.level!r}"
            assert one.subject.strip() and one.found.strip(), f"a finding says nothing: {one!r}"
            assert one.remedy.strip() or one.level is Level.OK, f"the finding '{one.subject}' does not say what to do"

    def test_known_errors_explain_something(self) -> None:
        found = self.platform.known_errors()
        assert isinstance(found, list) and all(isinstance(one, KnownError) for one in found), (
            f"known_errors() is {found!r}, not a list of KnownError"
        )
        for error in found:
            assert error.patterns and error.cause.strip() and error.remedy.strip(), f"{error!r} explains nothing"
            for pattern in error.patterns:
                try:
                    compiled = re.compile(pattern, re.IGNORECASE)
                except re.error as problem:
                    pytest.fail(f"the pattern {pattern!r} of a known error is no regular expression: {problem}")
                anything = [text for text in ("", "all is well") if compiled.search(text)]
                assert not anything, f"the pattern {pattern!r} of a known error shows in any text"

    def test_abilities_are_a_set_of_abilities(self) -> None:
        found = self.platform.abilities()
        assert isinstance(found, frozenset), f"abilities() is a {type(found).__name__}, not a frozenset"
        wrong = [one for one in found if not isinstance(one, Ability)]
        assert not wrong, f"abilities() has {wrong} in it, which are no Ability"

    def test_devices_are_counted_and_can_be_set_up_twice(self, device: Platform) -> None:
        device.setup()
        count, visible = device.device_count(), device.visible_ids()
        assert type(count) is int and count >= 1, f"device_count() is {count!r} where there is a device"
        if visible:
            variable = device.visible_devices_env
            assert count == len(visible), f"{variable} shows {len(visible)} devices, device_count() is {count}"

    def test_a_device_is_named_by_its_logical_index(self, device: Platform) -> None:
        for index in range(device.device_count()):
            found = device.device(index)
            assert found.type == device.device_type, f"device({index}) is '{found}', not of type {device.device_type}"
            assert found.type == "cpu" or found.index == index, f"device({index}) is '{found}'"

    def test_identities_tell_devices_apart(self, device: Platform) -> None:
        uids = [device.device_uid(index) for index in range(device.device_count())]
        assert all(isinstance(uid, str) and uid for uid in uids), f"device_uid is not text: {uids}"
        if type(self).platform_class.visible_devices_env:
            assert len(set(uids)) == len(uids), f"two devices have one identity: {uids}"
        assert uids == [type(self).platform_class().device_uid(index) for index in range(len(uids))]

    def test_a_worker_sees_the_device_it_was_shown(self, device: Platform) -> None:
        given = type(self).platform_class
        if not given.visible_devices_env:
            pytest.skip(f"{given.__name__} has no variable that limits what is visible")
        last = device.device_count() - 1
        ids = device.visible_ids() or [str(index) for index in range(last + 1)]
        found = in_fresh_interpreter(
            f"from {given.__module__} import {given.__qualname__} as P\nplatform = P()\nplatform.setup()\n"
            "result = [platform.device_count(), str(platform.device(0)), platform.device_uid(0)]",
            device.visible([ids[last]]),
        )
        assert found[0] == 1, f"a worker that was shown device {ids[last]} alone counts {found[0]}"
        assert found[2] == device.device_uid(last), (
            f"device {ids[last]} is '{device.device_uid(last)}' here and '{found[2]}' to a worker that sees it alone"
        )

    def test_memory_figures_move(self, device: Platform) -> None:
        import torch

        before, size = device.memory(), 64 * 2**20
        block = torch.ones(size // 4, device=device.device(0))
        after = device.memory()
        risen = after.allocated - before.allocated
        assert risen >= 0.9 * size, f"64 MiB were allocated, memory().allocated rose by {risen / 2**20:.0f} MiB"
        assert 0 < after.allocated <= after.total, f"memory() is {after}"
        assert after.peak >= after.allocated * 0.99, f"memory().peak is below what is allocated: {after}"
        del block
        device.empty_cache()

    def test_random_numbers_repeat(self, device: Platform) -> None:
        import torch

        draws = []
        for seed in (5, 5, 6):
            torch.manual_seed(seed)
            draws.append(torch.rand(1000, device=device.device(0)).cpu())
        assert torch.equal(draws[0], draws[1]), "one seed gives other numbers the second time"
        assert not torch.equal(draws[0], draws[2]), "two seeds give the same numbers"

    def test_work_is_done_when_synchronised(self, device: Platform) -> None:
        import torch

        values = torch.arange(4096.0).reshape(64, 64) / 4096
        there = values.to(device.device(0))
        product = there @ there
        device.torch.synchronize()
        torch.testing.assert_close(product.cpu(), values @ values, rtol=1e-2, atol=1e-3)

    @needs(Ability.BF16)
    def test_bfloat16_is_computed_with(self, device: Platform) -> None:
        import torch

        values = torch.ones(8, 8, dtype=torch.bfloat16, device=device.device(0))
        assert (values @ values).float().cpu().unique().tolist() == [8.0]  # type: ignore[no-untyped-call]

    @needs(Ability.FP16)
    def test_float16_is_computed_with(self, device: Platform) -> None:
        import torch

        values = torch.ones(8, 8, dtype=torch.float16, device=device.device(0))
        assert (values @ values).float().cpu().unique().tolist() == [8.0]  # type: ignore[no-untyped-call]

    @needs(Ability.DEVICE_IPC)
    def test_device_memory_is_shared_between_processes(self, device: Platform) -> None:
        assert shares_memory(device), "what another process wrote to a tensor on the device is not seen here"

    def test_collectives_and_a_sharded_step_over_its_backend(self, device: Platform) -> None:
        if device.device_count() < self.num_ranks and device.visible_devices_env:
            pytest.skip(f"{self.num_ranks} devices are needed, {device.device_count()} are here")
        for rank, found in enumerate(run_ranks(type(self).platform_class, self.num_ranks)):
            assert found["backend"] == device.collective_backend, (
                f"rank {rank}'s group uses '{found['backend']}', the platform names '{device.collective_backend}'"
            )
            assert found["sum"] == self.num_ranks * (self.num_ranks + 1) / 2, f"all_reduce on rank {rank}: {found}"
            assert found["sent"] == 7.0, f"broadcast from rank 0 reached rank {rank} as {found['sent']}"
            assert found["gathered"] == list(range(self.num_ranks)), f"all_gather on rank {rank}: {found['gathered']}"
            assert found["difference"] < 1e-5, (
                f"one step of a model sharded with FSDP2 differs from the unsharded one by {found['difference']:g}"
            )


@contextmanager
def _same_environment(title: str) -> Iterator[None]:
    before = dict(os.environ)
    yield
    changed = sorted(name for name in before.keys() | os.environ.keys() if before.get(name) != os.environ.get(name))
    assert not changed, f"{title} changed this process's environment: {changed}; it says what workers shall have"


def _check_env(title: str, env: Any) -> None:
    for name, value in env.items():
        assert isinstance(name, str) and VARIABLE.fullmatch(name), f"{title} has {name!r}, no name of a variable"
        assert isinstance(value, str), f"{title} sets {name} to {value!r}, a {type(value).__name__}; it must be text"
        assert "\x00" not in value, f"{title} sets {name} to text with a null character"


def _resources_of_ray() -> dict[str, str]:
    """What Ray itself counts devices as, by the variable that limits them; Ray has no public list of it."""
    accelerators = pytest.importorskip("ray._private.accelerators")
    managers = accelerators.get_all_accelerator_managers()
    # Several of Ray's kinds share no variable, so the list is a map.
    return {one.get_visible_accelerator_ids_env_var(): one.get_resource_name() for one in managers}
