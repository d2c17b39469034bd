"""Versions that go together: the two tables that exist, and which of their rows a machine has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from roll_ascend.machine import Machine
from roll_core.findings import Level, Seen, well


@dataclass(frozen=True)
class Stack:
    """One row: who says that these versions work together."""

    source: str
    versions: Mapping[str, str]


GUIDE = Stack(
    "ROLL's guide for Ascend NPUs",
    {
        "python": "3.12",
        "CANN": "9.1.0",
        "torch": "2.10.0",
        "torch-npu": "2.10.0.post4",
        "vllm": "0.23.0",
        "vllm-ascend": "0.23.0rc1",
        "triton-ascend": "3.2.1",
        "transformers": "4.57.6",
    },
)
VLLM_ASCEND = (
    Stack(
        "vLLM-Ascend's row 0.23.0rc1",
        {
            "CANN": "9.0.1",
            "torch": "2.10.0",
            "torch-npu": "2.10.0.post2",
            "vllm": "0.23.0",
            "vllm-ascend": "0.23.0rc1",
            "triton-ascend": "3.2.1",
            "transformers": "5.5.4",
        },
    ),
    Stack(
        "vLLM-Ascend's row 0.23.0",
        {
            "CANN": "9.1.0",
            "torch": "2.10.0",
            "torch-npu": "2.10.0.post4",
            "vllm": "0.23.0",
            "vllm-ascend": "0.23.0",
            "triton-ascend": "3.2.2",
            "transformers": "5.5.4",
        },
    ),
)
"""vLLM-Ascend's versioning policy; torch-npu, triton-ascend and transformers also as its wheels require them."""

STACKS = (GUIDE, *VLLM_ASCEND)
MIXED = (
    "the guide's stack takes vllm-ascend and triton-ascend from vLLM-Ascend's row 0.23.0rc1, and CANN and torch-npu "
    "from its row 0.23.0"
)
INDEX = "https://mirrors.huaweicloud.com/ascend/repos/pypi"
REINSTALL_TRITON = (
    f"pip uninstall -y triton triton-ascend; pip install triton-ascend=={GUIDE.versions['triton-ascend']} "
    f"--extra-index-url {INDEX}"
)


def stack(machine: Machine) -> Iterator[Seen]:
    """Whether the versions are a row of one of the tables."""
    here = _versions(machine)
    if "torch-npu" not in here:
        yield Seen(
            Level.ERROR,
            "torch-npu is not installed",
            f"an image with it, or pip install torch-npu=={GUIDE.versions['torch-npu']}",
        )
        return
    distances = [(len(_differences(here, one)), one) for one in STACKS]
    fewest, nearest = min(distances, key=lambda pair: pair[0])
    if fewest == 0:
        remark = f"; {MIXED}" if nearest is GUIDE else ""
        yield well(f"as in {nearest.source}: {_listed(here)}{remark}")
        return
    different = ", ".join(
        f"{name} {here.get(name, 'missing')} instead of {nearest.versions[name]}"
        for name in _differences(here, nearest)
    )
    yield Seen(
        Level.WARNING,
        f"no table has these versions together; nearest is {nearest.source}: {different}",
        "take one row whole, or expect to validate the combination yourself; " + MIXED,
    )


def torch_pair(machine: Machine) -> Iterator[Seen]:
    """torch-npu is built against one torch, and its version begins with that one's."""
    yield from _pair(machine, "torch", "torch-npu")


def vllm_pair(machine: Machine) -> Iterator[Seen]:
    """vLLM without vLLM-Ascend sees no NPU; with another release of it, it fails somewhere."""
    yield from _pair(machine, "vllm", "vllm-ascend")


def triton(machine: Machine) -> Iterator[Seen]:
    """triton and triton-ascend install into one folder; whichever comes second breaks the other."""
    here = machine.versions
    if "triton" in here:
        beside = f" beside triton-ascend {here['triton-ascend']}" if "triton-ascend" in here else ""
        found = f"triton {here['triton']} is installed{beside}; both are the folder triton, and NPUs need triton-ascend"
        yield Seen(Level.ERROR, found, REINSTALL_TRITON)
    elif "triton-ascend" in here:
        version, folder = here["triton-ascend"], machine.package_folder("triton")
        if folder is not None and (folder / "__init__.py").exists():
            yield well(f"triton-ascend {version} alone")
        else:
            what = f"{folder}/__init__.py is missing" if folder else "its folder triton is gone"
            found = f"triton-ascend {version} is damaged: {what}, as after uninstalling triton"
            yield Seen(Level.ERROR, found, REINSTALL_TRITON)
    elif "vllm-ascend" in here:
        found = "triton-ascend is missing; vLLM-Ascend falls back to slower operators"
        yield Seen(Level.WARNING, found, REINSTALL_TRITON)


def flash_attn(machine: Machine) -> Iterator[Seen]:
    """transformers prefers the package where it finds it, and it has no kernels for NPUs."""
    version = machine.versions.get("flash-attn")
    if version:
        yield Seen(
            Level.ERROR,
            f"flash_attn {version} is installed, which is for other devices",
            "pip uninstall -y flash_attn; attn_implementation: fa2 uses transformers' own for NPUs",
        )
    else:
        yield well("not installed, and not needed: attn_implementation fa2 uses transformers' own for NPUs")


def _pair(machine: Machine, base: str, added: str) -> Iterator[Seen]:
    here = machine.versions
    if added not in here:
        if base == "vllm" and base in here:
            yield Seen(
                Level.ERROR,
                f"vllm {here[base]} without vllm-ascend sees no NPU",
                f"pip install vllm-ascend with the release of vllm, such as {GUIDE.versions['vllm-ascend']}",
            )
        return
    if base not in here:
        yield Seen(Level.ERROR, f"{added} {here[added]} without {base}", f"install {base} {_release(here[added])}")
    elif _release(here[base]) != _release(here[added]):
        yield Seen(
            Level.ERROR,
            f"{base} {here[base]} and {added} {here[added]} are of different releases; installing one may have "
            "replaced the other",
            f"install {base} {_release(here[added])}, or {added} for {base} {_release(here[base])}",
        )
    else:
        yield well(f"{base} {here[base]} and {added} {here[added]}")


def _versions(machine: Machine) -> dict[str, str]:
    names = GUIDE.versions
    found = {name: machine.versions[name] for name in names if name in machine.versions}
    found["python"] = machine.python
    if machine.cann_version:
        found["CANN"] = machine.cann_version
    return {name: found[name] for name in names if name in found}


def _differences(here: Mapping[str, str], row: Stack) -> list[str]:
    # What is not installed is another check's concern, so that a machine that only trains can be a row too.
    return [name for name, wanted in row.versions.items() if name in here and _plain(here[name]) != wanted]


def _plain(version: str) -> str:
    return version.partition("+")[0]


def _release(version: str) -> str:
    """The numbers of a version, without what marks candidates, later builds and variants: 2.10.0.post4 is 2.10.0."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return match[0] if match else version


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
