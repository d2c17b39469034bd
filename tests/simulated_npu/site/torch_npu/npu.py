"""`torch.npu`: the device's module, with the names and signatures that torch_npu has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from torch_npu._load import extension as _C

Device = torch.device | int | str | None


def _index(device: Device) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return current_device() if device < 0 else device
    device = torch.device(device)
    if device.type != "npu":
        raise ValueError(f"Expected a npu device, but got: {device}")
    return current_device() if device.index is None else device.index


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    _C.require_devices()


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return int(_C.device_count())


def current_device() -> int:
    return int(_C.current_device())


def set_device(device: Device) -> None:
    _C.set_device(_index(device))


@contextmanager
def device(device: Device) -> Iterator[None]:
    before = current_device()
    set_device(device)
    try:
        yield
    finally:
        set_device(before)


def synchronize(device: Device = None) -> None:
    torch.accelerator.synchronize(_index(device))


def get_device_name(device_name: Device = None) -> str:
    return f"Ascend910B (simulated, id {_C.device_id(_index(device_name))})"


@dataclass(frozen=True)
class _DeviceProperties:
    name: str
    total_memory: int


def get_device_properties(device_name: Device = None) -> _DeviceProperties:
    return _DeviceProperties(get_device_name(device_name), mem_get_info(device_name)[1])


def is_bf16_supported() -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16, torch.float32]


def empty_cache() -> None:
    torch.accelerator.empty_cache()


def memory_stats(device: Device = None) -> dict[str, Any]:
    return dict(torch.accelerator.memory_stats(_index(device)))


def memory_allocated(device: Device = None) -> int:
    return int(torch.accelerator.memory_allocated(_index(device)))


def max_memory_allocated(device: Device = None) -> int:
    return int(torch.accelerator.max_memory_allocated(_index(device)))


def memory_reserved(device: Device = None) -> int:
    return int(torch.accelerator.memory_reserved(_index(device)))


def max_memory_reserved(device: Device = None) -> int:
    return int(torch.accelerator.max_memory_reserved(_index(device)))


def reset_peak_memory_stats(device: Device = None) -> None:
    torch.accelerator.reset_peak_memory_stats(_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    free, total = torch.accelerator.get_memory_info(_index(device))
    return int(free), int(total)


def _generator(device: Device) -> torch.Generator:
    generator: torch.Generator = _C.default_generator(_index(device))
    return generator


def manual_seed(seed: int) -> None:
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def initial_seed() -> int:
    return _generator(None).initial_seed()


def get_rng_state(device: Device = "npu") -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "npu") -> None:
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


class Stream(torch.Stream):
    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Any:
        return super().__new__(cls, device=torch.device("npu", _index(device)), priority=priority, **kwargs)


class Event:
    """Makes torch's own events, which refuse to be inherited from."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        if interprocess:
            raise RuntimeError("events between processes are not simulated")
        return torch.Event("npu", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Device = None) -> torch.Stream:
    return torch.accelerator.current_stream(_index(device))


def default_stream(device: Device = None) -> torch.Stream:
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=_DEVICE_TYPE)


_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    if stream is None:
        yield
        return
    before = current_stream()
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)
