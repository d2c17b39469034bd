"""What core and roll_cuda use of torch's module of a device is in the installed torch. Needs no device."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

import pytest
import torch
from roll_cuda import env
from roll_cuda.checks import RENAMED

from tests.registry.source_index import Found
from tests.registry.used_names import CORE, CUDA, Use, device_module_uses, dotted_uses

FOLDER = Path(torch.__file__).parent


def fault_of(use: Use) -> str:
    """What is wrong with a use of torch.cuda; empty where nothing is."""
    name = use.name.partition(".")[0]
    if not hasattr(torch.cuda, name):
        return f"{use.where}: torch.cuda has no {name}"
    if use.call is not None:
        count, keywords = use.call
        try:
            inspect.signature(getattr(torch.cuda, name)).bind(*range(count), **dict.fromkeys(keywords))
        except TypeError as error:
            return f"{use.where}: torch.cuda.{name}: {error}"
    return ""


def test_every_name_of_torch_cuda_that_is_used_is_there_and_takes_our_call() -> None:
    uses = device_module_uses(CORE, CUDA) + dotted_uses("torch.cuda", CUDA)
    assert {"set_device", "mem_get_info", "get_device_properties", "is_initialized"} <= {use.name for use in uses}
    assert [fault for fault in map(fault_of, uses) if fault] == []


@pytest.mark.parametrize(
    ("use", "fault"),
    [
        (Use("mem_get_infos", "f.py:1"), "f.py:1: torch.cuda has no mem_get_infos"),
        (Use("empty_cache", "f.py:1", (1, ())), "f.py:1: torch.cuda.empty_cache: too many positional arguments"),
        (Use("set_device", "f.py:1", (0, ("dev",))), "f.py:1: torch.cuda.set_device: missing a required argument"),
    ],
)
def test_a_name_or_call_that_torch_does_not_have_is_seen(use: Use, fault: str) -> None:
    assert fault_of(use).startswith(fault)


def test_private_names_of_torch_are_in_its_stubs() -> None:
    stubs = ast.parse((FOLDER / "_C" / "__init__.pyi").read_text(encoding="utf-8"))
    functions = {node.name: node for node in stubs.body if isinstance(node, ast.FunctionDef)}
    uses = dotted_uses("torch._C", CUDA)
    assert [use.name for use in uses] == ["_cuda_clearCublasWorkspaces"]
    assert all(Found(functions[use.name]).accepts(0, ()) for use in uses)
    [properties] = [
        node for node in stubs.body if isinstance(node, ast.ClassDef) and node.name.endswith("_CudaDeviceProperties")
    ]
    assert "uuid" in ast.unparse(properties)


@pytest.mark.skipif(sys.platform != "linux", reason="reads torch's shared libraries")
def test_every_variable_of_torch_that_is_set_or_checked_has_a_reader_in_it() -> None:
    names = {env.CUDA_ALLOCATOR, env.ROCM_ALLOCATOR, env.COMMON_ALLOCATOR, *RENAMED.values()}
    names |= {name for name in (*env.CUDA, *env.HOST) if name.startswith("TORCH")}
    # A build for processors lacks the library of CUDA, and reads the names it has in these.
    places = [*(FOLDER / "lib").glob("libc10*.so"), *(FOLDER / "lib").glob("libtorch_*.so")]
    places += [FOLDER / "_inductor" / "config.py", FOLDER / "_inductor" / "compile_worker", FOLDER / "distributed"]
    content = b"".join(
        path.read_bytes() for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))
    )
    unread = sorted(name for name in names if name.encode() not in content)
    # Read by ProcessGroupNCCL, which only builds for GPUs have.
    only_on_devices = {name for name in unread if name.startswith("TORCH_NCCL") and not torch.backends.cuda.is_built()}
    assert set(unread) - only_on_devices == set()
