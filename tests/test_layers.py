"""Who may import whom: dependencies point one way, and what must start fast imports nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "roll_core"

# From the bottom up. A module may import from its own layer and from those before it. The longest name that a
# module begins with decides.
LAYERS: dict[str, tuple[str, ...]] = {
    "values": (
        "roll_core",
        "roll_core._version",
        "roll_core.backend",
        "roll_core.context",
        "roll_core.errors",
        "roll_core.findings",
        "roll_core.migration",
        "roll_core.names",
        "roll_core.objects",
        "roll_core.source_names",
    ),
    "hooks": ("roll_core.hookspecs",),
    "resolve": ("roll_core.plugin_rules", "roll_core.plugins", "roll_core.resolve"),
    "bases": (
        "roll_core.data.data_proto",
        "roll_core.inference.base",
        "roll_core.platforms.base",
        "roll_core.rewards.base",
        "roll_core.training.base",
        "roll_core.transport.base",
        "roll_core.weights.base",
    ),
    "implementations": (
        "roll_core.algorithms",
        "roll_core.builtins",
        "roll_core.checkpoint",
        "roll_core.data",
        "roll_core.display",
        "roll_core.envs",
        "roll_core.inference",
        "roll_core.platforms",
        "roll_core.rewards",
        # Pure functions that configs name; they need nothing of the rollout around them.
        "roll_core.rollout.filters",
        "roll_core.show",
        "roll_core.trackers",
        "roll_core.training",
        "roll_core.transport",
        "roll_core.weights",
    ),
    "config": ("roll_core.config", "roll_core.migrate"),
    "cluster": ("roll_core.cluster",),
    "rollout": ("roll_core.rollout",),
    "pipelines": ("roll_core.pipelines",),
    "doctor": ("roll_core.doctor",),
    "cli": ("roll_core.__main__", "roll_core.cli"),
    # Contracts for plugins: they may use anything, and nothing in core uses them.
    "testing": ("roll_core.testing",),
}
RANK = {prefix: rank for rank, prefixes in enumerate(LAYERS.values()) for prefix in prefixes}
NAME_OF_RANK = list(LAYERS)

# A package's __init__ re-exports its base for those below it, so importing the package is importing the base.
FACES = {"data", "inference", "platforms", "rewards", "training", "transport", "weights"}

HEAVY = {"numpy", "ray", "safetensors", "sglang", "tensordict", "torch", "transformers", "vllm"}
HEAVY_FOR_COMMANDS = HEAVY | {"hydra", "omegaconf", "pydantic", "rich", "yaml"}
"""What a command such as `roll plugins` must not wait for."""
LIGHT = {
    "roll_core.config": HEAVY,
    "roll_core.migrate": HEAVY,
    "roll_core.training.base": HEAVY,
    "roll_core.inference.base": HEAVY,
    "roll_core.transport.base": HEAVY,
    "roll_core.weights.base": HEAVY,
    "roll_core.objects": HEAVY_FOR_COMMANDS,
    "roll_core.cli": HEAVY,
    "roll_core.doctor": HEAVY_FOR_COMMANDS,
    "roll_core.platforms": HEAVY_FOR_COMMANDS,
    "roll_core.builtins": HEAVY_FOR_COMMANDS,
    **{name: HEAVY_FOR_COMMANDS for layer in ("values", "hooks", "resolve") for name in LAYERS[layer]},
}


def module_name(path: Path) -> str:
    parts = path.relative_to(CORE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(CORE.rglob("*.py"))}


def imports(node: ast.AST, *, in_functions: bool) -> Iterator[str]:
    """Dotted names that are imported when the code runs: not those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield from imports(ast.Module([other], []), in_functions=in_functions)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import at line {child.lineno}"
            # `from package import module` imports the module; `from module import thing` the module alone.
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield inner if inner in MODULES else str(child.module)
        elif in_functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports(child, in_functions=in_functions)


def rank_of(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in RANK and (length > 1 or module == prefix):
            return RANK[prefix]
    raise AssertionError(f"{module} is in no layer: add it to LAYERS")


def rank_when_imported(module: str) -> int:
    is_face = module.count(".") == 1 and module.rpartition(".")[2] in FACES
    return NAME_OF_RANK.index("bases") if is_face else rank_of(module)


def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def test_every_module_is_in_a_layer() -> None:
    assert all(rank_of(module) >= 0 for module in MODULES)


def test_dependencies_point_one_way() -> None:
    upward = [
        f"{module} ({NAME_OF_RANK[rank_of(module)]}) imports {name} ({NAME_OF_RANK[rank_when_imported(name)]})"
        for module in MODULES
        for name in imports(parsed(module), in_functions=True)
        if name in MODULES and rank_when_imported(name) > rank_of(module)
    ]
    assert upward == []


def test_light_modules_import_nothing_heavy_at_their_top() -> None:
    found = []
    for module in MODULES:
        above = [".".join(module.split(".")[:length]) for length in range(2, module.count(".") + 2)]
        heavy = set().union(*(LIGHT.get(name, set()) for name in {module, *above}))
        names = {name.partition(".")[0] for name in imports(parsed(module), in_functions=False)}
        found += [f"{module} imports {name}" for name in sorted(names & heavy)]
    assert found == []


def modules_after(code: str) -> set[str]:
    """Top-level packages that are loaded once the code has run in a fresh interpreter."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("layer", ["values", "hooks", "resolve", "config"])
def test_light_layers_bring_in_nothing_heavy_by_way_of_others(layer: str) -> None:
    members = [name for name in MODULES if NAME_OF_RANK[rank_of(name)] == layer]
    heavy = HEAVY if layer == "config" else HEAVY_FOR_COMMANDS
    assert modules_after("\n".join(f"import {name}" for name in members)) & heavy == set()


def test_the_command_line_with_all_its_commands_brings_in_nothing_heavy() -> None:
    assert modules_after("from roll_core.cli import build_app; build_app()") & HEAVY_FOR_COMMANDS == set()


def test_platforms_and_their_facts_need_no_torch() -> None:
    code = "from roll_core.platforms.cpu import CpuPlatform as P; P().worker_env('x'), P().ray_options(1), P.attention"
    assert "torch" not in modules_after(code)


def test_an_import_for_the_type_checker_only_is_not_counted() -> None:
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nelse:\n    import ray\n"
    code = guarded + "def f(): import numpy"
    assert list(imports(ast.parse(code), in_functions=False)) == ["typing", "ray"]
    assert list(imports(ast.parse(code), in_functions=True)) == ["typing", "ray", "numpy"]


def test_a_dependency_upwards_would_be_seen() -> None:
    assert rank_when_imported("roll_core.pipelines.rlvr") > rank_of("roll_core.training.fsdp2")
    assert rank_of("roll_core.training.fsdp2") > rank_when_imported("roll_core.training")
    assert rank_of("roll_core.rollout.scheduler") > rank_of("roll_core.rollout.filters")
