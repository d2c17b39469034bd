"""Wheels in a fresh environment: a plugin comes and goes with pip, and broken ones leave the others working."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.wheels import REPOSITORY, Environment, build_wheel, write_wheel

ASCEND = REPOSITORY / "plugins" / "roll_ascend"
OFFER = """
    PREAMBLE
    @hookimpl
    def roll_platforms():
        return [Backend("{name}", "{target}", "a test", probe=lambda: Availability(False, "no device"))]
"""
TWICE = "2 plugins are named 'roll_acme': acme-one, acme-two"
BROKEN = {
    # distribution: its entry point, its module, and what must be said of it
    "acme-one": ("roll_acme", OFFER.format(name="acme", target="x:Y"), TWICE),
    "acme-two": ("roll_acme", OFFER.format(name="acme", target="x:Y"), TWICE),
    "roll-raises": ("roll_raises", "raise RuntimeError('no driver')", "RuntimeError: no driver"),
    "roll-misspelt": (
        "roll_misspelt",
        "PREAMBLE\n@hookimpl\ndef roll_platfroms():\n    return []\n",
        "roll_platfroms",
    ),
    "roll-old": (
        "roll_old",
        "from roll_core import hookimpl\nROLL_PLUGIN_API = 0\n@hookimpl\ndef roll_platforms():\n    return []\n",
        "API 0",
    ),
    "roll-lost": (
        "roll_lost",
        OFFER.format(name="lost", target="roll_lost_platform:LostPlatform"),
        "platform 'lost' cannot be loaded: there is no module 'roll_lost_platform'",
    ),
}
CONFIG = """\
platform: {platform}
rollout_batch_size: 8
num_return_sequences_in_group: 4
prompt_length: 32
response_length: 32
adv_estimator: grpo
pretrain: acme/thing
actor_train:
  training_args: {{per_device_train_batch_size: 4, gradient_accumulation_steps: 4}}
  data_args: {{file_name: train.jsonl}}
  strategy_args: {{strategy_name: fsdp2_train}}
  device_mapping: [0, 1]
actor_infer:
  strategy_args: {{strategy_name: hf_infer}}
  device_mapping: [0, 1]
rewards: {{math_rule: {{}}}}
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    found = {"roll-core": build_wheel(REPOSITORY, folder), "roll-ascend": build_wheel(ASCEND, folder)}
    for dist, (point, source, _) in BROKEN.items():
        found[dist] = write_wheel(folder, dist, source, point=point)
    return found


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Environment:
    """roll-core alone; each test installs the plugins that it needs, and removes them."""
    environment = Environment(tmp_path_factory.mktemp("fresh"))
    environment.install(wheels["roll-core"])
    return environment


@pytest.fixture
def with_broken(fresh: Environment, wheels: dict[str, Path]) -> Iterator[Environment]:
    """A plugin that works, among broken ones."""
    fresh.install(wheels["roll-ascend"], *(wheels[dist] for dist in BROKEN))
    yield fresh
    fresh.uninstall("roll-ascend", *BROKEN)


def config_for(environment: Environment, platform: str) -> str:
    path = environment.folder.parent / f"{platform}.yaml"
    path.write_text(CONFIG.format(platform=platform), encoding="utf-8")
    return str(path)


def states(environment: Environment) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code of `roll plugins`, and state and problem of each distribution."""
    done = environment.run("roll", "plugins", "--json")
    records = json.loads(done.stdout)
    return done.returncode, {record["dist"]: (record["state"], record["problem"]) for record in records}


def test_a_plugin_comes_and_goes_with_pip(fresh: Environment, wheels: dict[str, Path]) -> None:
    fresh.install(wheels["roll-ascend"])
    where = fresh.run("python", "-c", "import roll_core, roll_ascend; print(roll_core.__file__, roll_ascend.__file__)")
    assert [path.startswith(str(fresh.folder)) for path in where.stdout.split()] == [True, True], where.stderr
    assert states(fresh) == (0, {"roll-core": ("loaded", ""), "roll-ascend": ("loaded", "")})

    config = config_for(fresh, "npu")
    with_it = fresh.run("roll", "check", config, "--platform", "npu")
    assert "platform  npu" in with_it.stdout, with_it.stderr
    assert "pip install" not in with_it.stdout

    fresh.uninstall("roll-ascend")
    assert states(fresh) == (0, {"roll-core": ("loaded", "")})
    without = fresh.run("roll", "check", config)
    assert without.returncode == 2
    assert "platform: no platform named 'npu'" in without.stdout
    assert "pip install roll-ascend" in without.stdout
    run = fresh.run("roll", "run", config)
    assert run.returncode == 2
    assert "pip install roll-ascend" in run.stderr
    assert "Traceback" not in run.stdout + run.stderr


def test_broken_plugins_are_named_with_their_cause_and_the_others_work(with_broken: Environment) -> None:
    listed = with_broken.run("roll", "plugins")
    assert listed.returncode == 1
    lines = listed.stdout.splitlines()
    for dist, (point, _, cause) in BROKEN.items():
        [row] = [number for number, line in enumerate(lines) if line.split()[:2] == [point, dist]]
        assert cause in lines[row + 1]
    _, found = states(with_broken)
    assert {dist: state for dist, (state, _) in found.items()} == {
        "roll-core": "loaded",
        "roll-ascend": "loaded",
        "roll-lost": "loaded",
    } | dict.fromkeys(["acme-one", "acme-two", "roll-raises", "roll-misspelt", "roll-old"], "failed")

    works = with_broken.run("roll", "check", config_for(with_broken, "npu"), "--platform", "npu")
    assert "platform  npu" in works.stdout, works.stderr
    lost = with_broken.run("roll", "check", config_for(with_broken, "lost"), "--platform", "lost")
    assert lost.returncode == 2
    assert "there is no module 'roll_lost_platform'" in lost.stdout
    assert "pip install --force-reinstall roll-lost" in lost.stdout

    done = with_broken.run("roll", "doctor", "--json")
    assert done.returncode == 2, done.stderr
    [plugins] = [section for section in json.loads(done.stdout)["sections"] if section["title"] == "plugins"]
    for dist, (point, _, cause) in BROKEN.items():
        [finding] = [one for one in plugins["findings"] if one["subject"].startswith(f"{point} ({dist} ")]
        assert (finding["level"], cause in finding["found"], dist in finding["remedy"]) == ("error", True, True)
