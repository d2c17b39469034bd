"""CANN and the driver below it: installed, sourced, and made for the chip of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from roll_ascend.machine import Machine
from roll_core.findings import Level, Seen, well

SOURCE = "source /usr/local/Ascend/ascend-toolkit/set_env.sh; source /usr/local/Ascend/nnal/atb/set_env.sh"
SOURCED_BY = {"ASCEND_OPP_PATH": "ascend-toolkit/set_env.sh", "ATB_HOME_PATH": "nnal/atb/set_env.sh"}
"""A variable that only this script sets: images set ASCEND_HOME_PATH and LD_LIBRARY_PATH without sourcing it."""
IMAGES = {"A2": "Dockerfile.A2, or quay.io/ascend/roll:main-a2", "A3": "Dockerfile.A3, or quay.io/ascend/roll:main-a3"}
SOC_OF_CHIP = {"A2": "ascend910b", "A3": "ascend910_93"}


def toolkit(machine: Machine) -> Iterator[Seen]:
    """Whether CANN is there, and its two scripts were sourced in the shell that started this process."""
    if machine.cann_folder is None:
        yield Seen(
            Level.ERROR,
            "no CANN toolkit below /usr/local/Ascend",
            "start from an image with CANN, or build docker/Dockerfile.A2 or .A3",
        )
        return
    missing = [script for variable, script in SOURCED_BY.items() if variable not in machine.environ]
    if missing:
        scripts = f"{' and '.join(missing)} {'was' if len(missing) == 1 else 'were'}"
        yield Seen(Level.ERROR, f"CANN is installed, but {scripts} not sourced here", SOURCE)
        return
    yield well(f"CANN {machine.cann_version or 'of an unknown version'} in {machine.cann_folder}, sourced")


def driver(machine: Machine) -> Iterator[Seen]:
    """The driver belongs to the host; a container sees what is mounted of it."""
    if machine.driver_version:
        yield well(f"driver {machine.driver_version}")
        return
    mounts = "/usr/local/Ascend/driver, /usr/local/Ascend/add-ons, /usr/local/dcmi, /usr/local/bin/npu-smi"
    yield Seen(
        Level.ERROR,
        "no /usr/local/Ascend/driver/version.info",
        f"install the driver on the host; in a container mount {mounts} and /etc/ascend_install.info",
    )


def chip(machine: Machine) -> Iterator[Seen]:
    """vLLM-Ascend is built for one chip, and compares at start."""
    if not machine.chip:
        yield well("the PCI bus shows no Atlas A2 or A3; others are not validated")
        return
    wrong = [
        f"{what} is for {built}"
        for what, built in (("vllm-ascend", _built_for(machine)), ("SOC_VERSION", _named_soc(machine)))
        if built and built != machine.chip
    ]
    if wrong:
        remedy = f"the image of an {machine.chip}: {IMAGES[machine.chip]}; or build vllm-ascend with SOC_VERSION"
        yield Seen(Level.ERROR, f"the chips are Atlas {machine.chip}, and {' and '.join(wrong)}", remedy)
        return
    yield well(f"Atlas {machine.chip}")


def _built_for(machine: Machine) -> str:
    folder = machine.package_folder("vllm_ascend")
    record = folder / "_build_info.py" if folder else None
    text = record.read_text(encoding="utf-8") if record and record.is_file() else ""
    match = re.search(r"__device_type__\s*=\s*['\"](\w+)['\"]", text)
    return match[1] if match else ""


def _named_soc(machine: Machine) -> str:
    named = machine.environ.get("SOC_VERSION", "").lower()
    return next((chip for chip, soc in SOC_OF_CHIP.items() if named.startswith(soc)), named)
