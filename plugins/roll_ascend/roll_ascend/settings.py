"""What the environment of this process sets: it wins over what workers would get from this plugin."""

from __future__ import annotations

from collections.abc import Iterator

from roll_ascend.env import READ_BY_NOBODY, VARIABLES
from roll_ascend.machine import Machine
from roll_core.findings import Level, Seen, well

AIV_LIMIT_S = 1091


def values(machine: Machine) -> Iterator[Seen]:
    """Values that their readers refuse, or take for something else than was meant."""
    faults = [(name, fault_of(name, machine.environ[name])) for name in sorted(VARIABLES) if name in machine.environ]
    for name, fault in faults:
        if fault:
            remedy = remedy_for(name, machine.environ[name])
            yield Seen(Level.ERROR, f"{name}={machine.environ[name]} {fault}", remedy)
    if not any(fault for _, fault in faults):
        yield well(f"{len(faults)} set, all of them possible")


def unread(machine: Machine) -> Iterator[Seen]:
    """Variables that guides recommend and nothing reads."""
    found = [name for name in READ_BY_NOBODY if name in machine.environ]
    for name in found:
        instead = f"; instead: {READ_BY_NOBODY[name]}" if READ_BY_NOBODY[name] else ""
        remedy = f"unset {name}{instead}"
        yield Seen(Level.WARNING, f"{name} is read by none of torch_npu 2.10, vLLM 0.23 and vLLM-Ascend 0.23", remedy)
    if not found:
        yield well("none set")


def weight_layout(machine: Machine) -> Iterator[Seen]:
    """An engine whose weights are updated must not keep them in the FRACTAL_NZ layout."""
    value = machine.environ.get("VLLM_ASCEND_ENABLE_NZ")
    if value not in (None, "0"):
        remedy = "unset VLLM_ASCEND_ENABLE_NZ, or export VLLM_ASCEND_ENABLE_NZ=0"
        yield Seen(Level.ERROR, f"VLLM_ASCEND_ENABLE_NZ={value}: engines refuse to take new weights", remedy)
        return
    yield well("engines get VLLM_ASCEND_ENABLE_NZ=0")


def segments(machine: Machine) -> Iterator[Seen]:
    """An engine that sleeps refuses to start with expandable segments."""
    name = "PYTORCH_NPU_ALLOC_CONF"
    if wants_segments(machine.environ.get(name, "")):
        found = f"{name}={machine.environ[name]} reaches engines too, which refuse to start with it"
        yield Seen(Level.ERROR, found, f"unset {name}: workers that train get expandable_segments:True anyway")
        return
    yield well("workers that train get expandable segments, engines do not")


def queue(machine: Machine) -> Iterator[Seen]:
    """Level 2 is for eager execution; an engine captures graphs."""
    if machine.environ.get("TASK_QUEUE_ENABLE") == "2":
        remedy = "unset TASK_QUEUE_ENABLE: workers that train get 2 anyway, engines 1"
        yield Seen(Level.WARNING, "TASK_QUEUE_ENABLE=2 reaches engines too, which need 1 for graphs", remedy)
        return
    yield well("workers that train get TASK_QUEUE_ENABLE=2, engines 1")


def timeouts(machine: Machine) -> Iterator[Seen]:
    """Collectives on the vector cores wait for a fixed time at most."""
    limit = machine.environ.get("HCCL_EXEC_TIMEOUT", VARIABLES["HCCL_EXEC_TIMEOUT"].training or "")
    is_vector = machine.environ.get("HCCL_OP_EXPANSION_MODE") == "AIV"
    if is_vector and limit.isdigit() and not 0 < int(limit) <= AIV_LIMIT_S:
        found = f"HCCL_OP_EXPANSION_MODE=AIV waits {AIV_LIMIT_S} seconds at most, not HCCL_EXEC_TIMEOUT={limit}"
        remedy = "unset HCCL_OP_EXPANSION_MODE where ranks wait longer for each other, such as during a rollout"
        yield Seen(Level.WARNING, found, remedy)
        return
    yield well(f"a collective may take {limit} seconds")


def debugging(machine: Machine) -> Iterator[Seen]:
    """Settings for finding faults, which make everything slow."""
    environ = machine.environ
    level = environ.get("ASCEND_GLOBAL_LOG_LEVEL", "3")
    slow = [f"ASCEND_GLOBAL_LOG_LEVEL={level}"] if level in ("0", "1", "2") else []
    slow += [f"{name}=1" for name in ("ASCEND_LAUNCH_BLOCKING",) if environ.get(name) == "1"]
    slow += [f"HCCL_DETERMINISTIC={environ[name]}" for name in ("HCCL_DETERMINISTIC",) if _is_on(environ.get(name))]
    if slow:
        yield Seen(Level.WARNING, f"{', '.join(slow)}: for finding faults, and slow", "unset them for real runs")
        return
    yield well("nothing that slows a run")


def fault_of(name: str, text: str) -> str:
    """What is wrong with a variable's value; empty where nothing is."""
    return VARIABLES[name].value.fault(text) if name in VARIABLES and text else ""


def remedy_for(name: str, text: str) -> str:
    """What to write instead; a size in bytes is turned into the MB that were meant."""
    variable = VARIABLES[name]
    if variable.unit == "MB" and text.isdigit() and int(text) >= 2**20:
        return f"it is counted in MB: {name}={int(text) // 2**20}"
    return f"{variable.unit}, {variable.default} where it is not set"


def wants_segments(text: str) -> bool:
    """Whether an allocator's setting asks for expandable segments."""
    return "expandable_segments:true" in text.lower().replace(" ", "")


def _is_on(text: str | None) -> bool:
    return (text or "false").lower() in ("true", "strict")
