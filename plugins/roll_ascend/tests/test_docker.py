"""The two images: the versions that the checks know, one shell that can source, and no difference but the chip."""

import json
import re
from pathlib import Path

import pytest
from roll_ascend.cann import SOC_OF_CHIP, SOURCE
from roll_ascend.versions import GUIDE

FOLDER = Path(__file__).parents[1] / "docker"
CHIPS = ("A2", "A3")


def text_of(chip: str) -> str:
    return (FOLDER / f"Dockerfile.{chip}").read_text(encoding="utf-8")


def instructions(chip: str) -> list[tuple[str, str]]:
    """Each instruction with its arguments, continued lines joined, comments left out."""
    plain = "\n".join(line for line in text_of(chip).splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", plain)
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined.splitlines() if line]


@pytest.mark.parametrize("chip", CHIPS)
def test_the_versions_are_those_of_the_matrix(chip: str) -> None:
    arguments = dict(line.split("=", 1) for word, line in instructions(chip) if word == "ARG")
    (base,) = [line for word, line in instructions(chip) if word == "FROM"]
    match = re.fullmatch(r"quay\.io/ascend/cann:([\d.]+)-(\w+)-ubuntu22\.04-py([\d.]+)-devel", base)
    assert match is not None
    found = {name.removesuffix("_VERSION").lower().replace("_", "-"): value for name, value in arguments.items()}
    assert {"CANN": match[1], "python": match[3]} | {
        name: found[name] for name in GUIDE.versions if name in found
    } == dict(GUIDE.versions)
    assert set(found) - set(GUIDE.versions) == {"soc", "torchvision", "torchaudio"}
    assert arguments["SOC_VERSION"].startswith(SOC_OF_CHIP[chip])
    assert match[2] == {"A2": "910b", "A3": "a3"}[chip]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_version_is_used_and_none_is_written_twice(chip: str) -> None:
    text = text_of(chip)
    for name in (line.partition("=")[0] for word, line in instructions(chip) if word == "ARG"):
        assert f"${{{name}}}" in text
    runs = " ".join(line for word, line in instructions(chip) if word == "RUN")
    assert re.findall(r"==\s*\d", runs) == []


@pytest.mark.parametrize("chip", CHIPS)
def test_one_shell_that_knows_source_comes_before_the_first_command(chip: str) -> None:
    words = [word for word, _ in instructions(chip)]
    (shell,) = [json.loads(line) for word, line in instructions(chip) if word == "SHELL"]
    assert shell[0] == "/bin/bash" and shell[-1] == "-c"
    assert words.index("SHELL") < words.index("RUN")


@pytest.mark.parametrize("chip", CHIPS)
def test_cann_is_sourced_whichever_way_a_command_is_started(chip: str) -> None:
    (entry,) = [json.loads(line) for word, line in instructions(chip) if word == "ENTRYPOINT"]
    assert entry[2] == f'{SOURCE}; exec "$@"' and entry[3] == "--"
    scripts = re.findall(r"/\S+set_env\.sh", SOURCE)
    to_bashrc = [line for word, line in instructions(chip) if word == "RUN" and ".bashrc" in line]
    assert len(to_bashrc) == 1 and all(script in to_bashrc[0] for script in scripts)


@pytest.mark.parametrize("chip", CHIPS)
def test_triton_goes_for_good_and_torch_npu_comes_after_what_would_replace_it(chip: str) -> None:
    runs = [line for word, line in instructions(chip) if word == "RUN"]
    place = {name: number for number, line in enumerate(runs) for name in MARKS if re.search(MARKS[name], line)}
    assert place["vllm"] < place["vllm-ascend"] < place["torch-npu"] < place["triton"] < place["check"]


MARKS = {
    "vllm": r"-e \./vllm(?!-)",
    "vllm-ascend": r"-e \./vllm-ascend",
    "torch-npu": r"--no-deps \"torch-npu==",
    "triton": r"pip uninstall -y triton triton-ascend .*triton-ascend==",
    "check": r"python -c",
}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_check_at_the_end_of_the_build_is_python(chip: str) -> None:
    (command,) = re.findall(r'RUN python -c "(.*?)"\n', text_of(chip), re.DOTALL)
    code = command.replace("\\\n", "")
    names = set(compile(code, "Dockerfile", "exec").co_names)
    from roll_ascend import versions

    for name in re.findall(r"versions\.(\w+)", code):
        assert callable(getattr(versions, name)) and name in names


def test_the_two_differ_in_the_chip_alone() -> None:
    a2, a3 = (text_of(chip) for chip in CHIPS)
    swaps = {"A2 PODc (Ascend 910B1)": "A3 PODc (Ascend 910_9391)", "ascend910b1": "ascend910_9391"}
    swaps |= {"Dockerfile.A2": "Dockerfile.A3", "9.1.0-910b": "9.1.0-a3"}
    for old, new in swaps.items():
        assert old in a2
        a2 = a2.replace(old, new)
    assert a2 == a3


@pytest.mark.parametrize("chip", CHIPS)
def test_nothing_in_it_is_for_one_kind_of_processor(chip: str) -> None:
    assert re.findall(r"amd64|x86_64|aarch64|arm64", text_of(chip)) == []
