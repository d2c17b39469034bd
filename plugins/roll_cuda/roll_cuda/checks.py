"""What is looked at on a machine with GPUs, or one that should have them, by the subject that findings name.

What every machine has, `roll doctor` looks at by itself: open files, shared memory, Ray's ports, the list of devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from roll_core.findings import Finding, Level, Seen, well
from roll_cuda.env import COMMON_ALLOCATOR, CUDA_ALLOCATOR, ROCM_ALLOCATOR, wants_segments
from roll_cuda.machine import Machine

Look = Callable[[Machine], Iterator[Seen]]

OLDEST_DRIVER = {"11": (450, 80, 2), "12": (525, 60, 13), "13": (580, 65, 6)}
"""The oldest Linux driver by CUDA's major version, from the release notes of CUDA toolkits."""

RENAMED = {
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
}
"""Variables of torch under the names they had before torch 2.2."""

SLOWS = {
    "NCCL_P2P_DISABLE": "devices of one host exchange through host memory",
    "NCCL_SHM_DISABLE": "processes of one host exchange through the network",
    "NCCL_IB_DISABLE": "nodes exchange over TCP",
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for",
    "AMD_SERIALIZE_KERNEL": "every kernel is waited for",
}


def cuda_findings(machine: Machine) -> list[Finding]:
    """What is seen of NVIDIA GPUs and their software."""
    looks: dict[str, Look] = {
        "devices": _nvidia_devices,
        "driver": _nvidia_driver,
        "torch build": lambda seen: _build(seen, "cuda", "CUDA"),
        "expandable segments": lambda seen: _segments(seen, CUDA_ALLOCATOR),
    }
    return _findings(looks | COMMON, machine)


def rocm_findings(machine: Machine) -> list[Finding]:
    """What is seen of AMD GPUs and their software."""
    looks: dict[str, Look] = {
        "devices": _amd_devices,
        "driver": _amd_driver,
        "torch build": lambda seen: _build(seen, "hip", "ROCm"),
        "lists of visible devices": _amd_lists,
        "expandable segments": lambda seen: _segments(seen, ROCM_ALLOCATOR),
    }
    return _findings(looks | COMMON, machine)


def _findings(looks: dict[str, Look], machine: Machine) -> list[Finding]:
    return [
        Finding(seen.level, subject, seen.found, seen.remedy)
        for subject, look in looks.items()
        for seen in look(machine)
    ]


def _nvidia_devices(machine: Machine) -> Iterator[Seen]:
    files = machine.devices("nvidia[0-9]*")
    if not files and machine.devices("dxg"):
        yield well("/dev/dxg, through WSL")
        return
    if not files:
        remedy = "install the driver; in a container, start it with --gpus all and NVIDIA's container toolkit"
        yield Seen(Level.ERROR, "no device file /dev/nvidia*", remedy)
        return
    missing = sorted({"nvidiactl", "nvidia-uvm"} - set(machine.devices("nvidia*")))
    if missing:
        remedy = "run nvidia-modprobe -u -c 0 on the host; in a container, start it with --gpus all"
        yield Seen(Level.ERROR, f"{len(files)} devices, but no /dev/{missing[0]}", remedy)
        return
    yield well(f"{len(files)}: {', '.join(files)}")


def _nvidia_driver(machine: Machine) -> Iterator[Seen]:
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", machine.text("proc/driver/nvidia/version"))
    build = machine.torch_builds.get("cuda", "")
    if match is None:
        if machine.devices("nvidia[0-9]*"):
            yield Seen(Level.WARNING, "/proc/driver/nvidia/version cannot be read", "look at nvidia-smi by hand")
        return
    oldest = OLDEST_DRIVER.get(build.partition(".")[0])
    if oldest and tuple(int(part) for part in match[1].split(".")) < oldest:
        needed = ".".join(map(str, oldest))
        remedy = f"install driver {needed} or later, or a torch built for an older CUDA"
        yield Seen(Level.ERROR, f"{match[1]}, and torch is built for CUDA {build}, which needs {needed}", remedy)
        return
    yield well(f"{match[1]}{f', enough for CUDA {build}' if oldest else ''}")


def _amd_devices(machine: Machine) -> Iterator[Seen]:
    if not machine.devices("kfd"):
        remedy = "install the amdgpu driver; in a container, start it with --device /dev/kfd --device /dev/dri"
        yield Seen(Level.ERROR, "no device file /dev/kfd", remedy)
        return
    nodes = machine.devices("dri/renderD*")
    if not nodes:
        yield Seen(Level.ERROR, "/dev/kfd, but no /dev/dri/renderD*", "start the container with --device /dev/dri")
        return
    yield well(f"/dev/kfd and {len(nodes)} of /dev/dri/renderD*")


def _amd_driver(machine: Machine) -> Iterator[Seen]:
    version = machine.text("sys/module/amdgpu/version")
    if version:
        yield well(f"amdgpu {version}")


def _amd_lists(machine: Machine) -> Iterator[Seen]:
    below = machine.environ.get("ROCR_VISIBLE_DEVICES")
    if below is None:
        yield well("ROCR_VISIBLE_DEVICES unset")
        return
    remedy = "unset ROCR_VISIBLE_DEVICES and list devices in HIP_VISIBLE_DEVICES"
    found = f"ROCR_VISIBLE_DEVICES={below}: HIP_VISIBLE_DEVICES and device_mapping count within that list"
    yield Seen(Level.WARNING, found, remedy)


def _build(machine: Machine, key: str, name: str) -> Iterator[Seen]:
    torch = machine.package("torch")
    remedy = f"choose a build for {name} on https://pytorch.org/get-started/locally/"
    if torch is None:
        yield Seen(Level.ERROR, "torch is not installed", remedy)
    elif key not in machine.torch_builds:
        other = ", ".join(f"{kind} {version}" for kind, version in machine.torch_builds.items()) or "processors only"
        yield Seen(Level.ERROR, f"torch {torch.version} is built for {other}, not for {name}", remedy)
    else:
        yield well(f"torch {torch.version}, for {name} {machine.torch_builds[key]}")


def _segments(machine: Machine, allocator: str) -> Iterator[Seen]:
    names = [name for name in (COMMON_ALLOCATOR, allocator) if wants_segments(machine.environ.get(name, ""))]
    for name in names:
        found = f"{name}={machine.environ[name]} reaches engines too, and one that sleeps refuses to start with it"
        remedy = f"unset {name}: workers that train get expandable_segments:True anyway"
        yield Seen(Level.ERROR, found, remedy)
    if not names:
        yield well("workers that train get expandable segments, engines do not")


def _engine_pins(machine: Machine) -> Iterator[Seen]:
    torch = machine.package("torch")
    for engine in ("vllm", "sglang"):
        found, pinned = machine.package(engine), machine.requirement_of(engine, "torch")
        if found is None or torch is None:
            continue
        shown = f"{engine} {found.version}"
        if pinned and torch.version.partition("+")[0] != pinned.partition("+")[0]:
            remedy = f"install torch {pinned}, or the {engine} that is built for torch {torch.version}"
            yield Seen(Level.ERROR, f"{shown} is built for torch {pinned}, and torch {torch.version} is there", remedy)
        else:
            yield well(f"{shown} beside torch {torch.version}")


def _flash_attn(machine: Machine) -> Iterator[Seen]:
    found = machine.package("flash-attn")
    if found is None:
        yield well("not installed: attn_implementation sdpa needs no package, flash_attention_2 needs this one")
    else:
        yield well(f"{found.version}; where its import fails, it was built for another torch")


def _variables(machine: Machine) -> Iterator[Seen]:
    seen = list(_settings(machine))
    yield from seen or [well("none that slows a run or misses its reader")]


def _settings(machine: Machine) -> Iterator[Seen]:
    environ = machine.environ
    for name, effect in SLOWS.items():
        if environ.get(name, "0") not in ("", "0"):
            yield Seen(Level.WARNING, f"{name}={environ[name]}: {effect}, which is slow", f"unset {name}")
    for old, new in RENAMED.items():
        if old in environ:
            yield Seen(
                Level.WARNING, f"{old} is the name before torch 2.2", f"unset {old}; export {new}={environ[old]}"
            )
    if environ.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE"):
        remedy = "unset NCCL_DEBUG, or export NCCL_DEBUG=WARN"
        yield Seen(Level.WARNING, f"NCCL_DEBUG={environ['NCCL_DEBUG']} writes lines for every group", remedy)
    if environ.get("NCCL_CUMEM_ENABLE", "0") != "0":
        found = f"NCCL_CUMEM_ENABLE={environ['NCCL_CUMEM_ENABLE']}, and vLLM sets 0 in its workers; ranks must agree"
        yield Seen(Level.ERROR, found, "unset NCCL_CUMEM_ENABLE")
    yield from _interface(machine)


def _interface(machine: Machine) -> Iterator[Seen]:
    asked = machine.environ.get("NCCL_SOCKET_IFNAME", "")
    if not asked or asked.startswith("^") or not machine.interfaces:
        return
    is_exact = asked.startswith("=")
    for name in asked.lstrip("=").split(","):
        there = name in machine.interfaces if is_exact else any(one.startswith(name) for one in machine.interfaces)
        if not there:
            found = f"NCCL_SOCKET_IFNAME={asked}, and this host has no interface {name}"
            yield Seen(Level.ERROR, found, f"one of: {', '.join(machine.interfaces)}")


COMMON: dict[str, Look] = {"engines and torch": _engine_pins, "flash_attn": _flash_attn, "variables": _variables}
