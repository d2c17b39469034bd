"""What the sglang strategy uses is in the published wheel, read as source and never installed (39 MB)."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from roll_core.config.schema import WorkerConfig
from roll_core.inference.base import GenerationRequest, SamplingParams
from roll_core.inference.sglang import installed
from roll_core.inference.sglang.config import OURS, engine_arguments
from roll_core.inference.sglang.requests import sampling_of
from roll_core.platforms import Ability
from roll_core.platforms.cpu import CpuPlatform
from tests.registry.source_index import SourceIndex
from tests.registry.used_names import CORE, Use, imported_modules
from tests.registry.wheels import Release, wheel_of

pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]

RELEASE = Release("sglang", "0.5.23", "3.11", "manylinux_2_34_x86_64")
ADAPTER = CORE / "inference" / "sglang"
ENGINE = "sglang.srt.entrypoints.engine"
MANAGER = "sglang.srt.managers.tokenizer_manager"


class Sleeper(CpuPlatform):
    """Asks for everything that the strategy can ask for."""

    def abilities(self) -> frozenset[Ability]:
        return super().abilities() | {Ability.SLEEP}


@cache
def index() -> SourceIndex:
    """The wheel is read once."""
    return SourceIndex(wheel_of(RELEASE))


def class_of(module: str, name: str) -> ast.ClassDef:
    found = index().find(module, name)
    assert found is not None and isinstance(found.node, ast.ClassDef), f"{module} has no class {name}"
    return found.node


def calls_of(owner: str) -> list[Use]:
    """Calls of methods of a local name or attribute such as `engine` or `manager` in the engine's process."""
    tree = ast.parse((ADAPTER / "host.py").read_text(encoding="utf-8"))
    return [
        Use(node.func.attr, f"host.py:{node.lineno}", (len(node.args), tuple(one.arg or "" for one in node.keywords)))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if ast.unparse(node.func.value) in (owner, f"self.{owner}")
    ]


def wrong_calls(uses: list[Use], defined: ast.ClassDef) -> list[str]:
    methods = {node.name: node for node in defined.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    wrong = []
    for use in uses:
        method, (positional, keywords) = methods.get(use.name), use.call or (0, ())
        if method is None:
            wrong.append(f"{use.where}: no method {use.name}")
            continue
        names = [argument.arg for argument in method.args.args[1:]]
        free = {*names[positional:], *(argument.arg for argument in method.args.kwonlyargs)}
        required = set(names[positional : len(names) - len(method.args.defaults)])
        if positional > len(names) or not required <= set(keywords) <= free:
            wrong.append(f"{use.where}: {use.name} takes {names}")
    return wrong


def test_the_supported_range_begins_with_the_version_that_is_read() -> None:
    assert installed.is_supported(RELEASE.version)


def test_every_module_that_is_imported_is_there() -> None:
    uses = imported_modules("sglang", ADAPTER)
    assert {use.name for use in uses} == {ENGINE, "sglang"}
    assert [use for use in uses if not index().has_module(use.name)] == []


def test_every_method_of_the_engine_is_there_and_takes_our_call() -> None:
    uses = calls_of("engine")
    assert {"async_generate", "update_weights_from_tensor", "begin_weight_update", "flush_cache"} <= {
        use.name for use in uses
    }
    assert wrong_calls(uses, class_of(ENGINE, "Engine")) == []


def test_the_tokenizer_manager_aborts_by_id_and_knows_what_it_handed_on() -> None:
    uses = calls_of("manager")
    assert [use.name for use in uses] == ["abort_request"]
    assert wrong_calls(uses, class_of(MANAGER, "TokenizerManager")) == []
    assert "dispatched" in fields(class_of(MANAGER, "ReqState"))
    for text in ("self.rid_to_state", "self.context_len"):
        assert text in ast.unparse(class_of(MANAGER, "TokenizerManager"))


def test_every_argument_is_a_field_of_serverargs() -> None:
    config = {"strategy_name": "sglang", "strategy_config": {}}
    role = WorkerConfig(name="x", model_args={"model_name_or_path": "m", "dtype": "fp32"}, strategy_args=config)
    known = frozenset().union(
        *(
            installed.fields_in(index().archive.read(path).decode())
            for path in index().files
            if path.startswith("sglang/srt/arg_groups/fields/") and path.endswith(".py")
        )
    )
    assert len(known) > 300
    assert sorted({*engine_arguments(role, Sleeper(), 0), *OURS} - known) == []


def test_sampling_is_in_sglangs_words() -> None:
    params = SamplingParams(4, stop=("x",), stop_token_ids=(1,))
    given = sampling_of(GenerationRequest("r", (1,), params, 0), ())
    assert sorted(set(given) - fields(class_of("sglang.srt.sampling.sampling_params", "SamplingParams"))) == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        # An output, as `output_of` reads it.
        (MANAGER, "'output_ids': state.output_ids"),
        (MANAGER, "meta_info['output_token_logprobs'] = state.output_token_logprobs"),
        (MANAGER, "(logprob, token_id, None)"),
        # Why ids have a fixed width, why aborts wait, and why `ignore_eos` is not used.
        ("sglang.srt.managers.scheduler", "req.rid.startswith(recv_req.rid)"),
        (MANAGER, "if state.abort_sent:\n"),
        ("sglang.srt.managers.schedule_batch", "if self.sampling_params.ignore_eos:\n"),
        # How the loader is called.
        (
            "sglang.srt.model_executor.model_runner_components.weight_updater",
            "custom_loader(self.get_model(), named_tensors)",
        ),
    ],
)
def test_sglang_still_does_what_the_strategy_relies_on(module: str, code: str) -> None:
    assert code in ast.unparse(index().tree(index().path_of(module)))


def fields(defined: ast.ClassDef) -> set[str]:
    return {ast.unparse(node.target) for node in defined.body if isinstance(node, ast.AnnAssign)}
