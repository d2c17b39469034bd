"""What the READMEs name is there, and called so: links, files, keys, metrics, signatures, maps and tables."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from importlib import metadata
from typing import get_args

import pytest

from roll_core.backend import HOOK_OF_KIND, NOUN_OF_KIND
from roll_core.config.keys import first_unknown
from roll_core.config.policy import Estimator
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.rules.agentic import MANAGERS
from roll_core.display.summary import RunSummary, summary_lines
from roll_core.envs.base import BUILTIN_ENVIRONMENTS
from roll_core.plugins import load_plugins
from roll_core.rewards.builtin import BUILTIN_REWARDS
from roll_core.rollout.filters import BUILTIN_FILTERS
from roll_core.trackers.opening import BUILTIN_TRACKERS
from tests.readme import CORE, FIRST, PLUGINS, REPOSITORY, Readme, code_words, names_in, readmes

each_readme = pytest.mark.parametrize("readme", readmes(), ids=str)

MADE_BY_RUNS = re.compile(r"(output|rollouts|runs|checkpoints|logs|roll_pretend)/|.*[<*]|.*\.(jsonl|png)$|\.venv")
"""Files that stand in no checkout."""


@each_readme
def test_links_lead_to_files(readme: Readme) -> None:
    assert [link for link in readme.links if not (readme.path.parent / link.partition("#")[0]).exists()] == []


@each_readme
def test_files_that_are_named_are_there(readme: Readme) -> None:
    looks_like_a_file = re.compile(r"[\w./-]+(/|\.(py|yaml|md|toml|sh|txt))")
    named = {span for span in readme.spans if looks_like_a_file.fullmatch(span) and not MADE_BY_RUNS.match(span)}
    named -= {block.file for block in readme.blocks} | {"/"}
    template = REPOSITORY / "examples" / "plugin_template"
    places = (readme.path.parent, REPOSITORY, REPOSITORY / "roll_core", template)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


@each_readme
def test_names_in_code_font_are_known_to_the_code(readme: Readme) -> None:
    names = {span for span in readme.spans if re.fullmatch(r"[A-Za-z_][\w.-]*", span) and not MADE_BY_RUNS.match(span)}
    strangers = [name for name in sorted(names) if not set(re.split(r"[.-]", name)) <= code_words()]
    assert [name for name in strangers if not (readme.path.parent / name).exists()] == []


@each_readme
def test_config_keys_are_in_the_schema(readme: Readme) -> None:
    # What has a dot and begins with a key is a key, also where a value follows or a name stands for any.
    spans = [re.fullmatch(r"((?:[\w]+|<\w+>)(?:\.(?:\w+|<\w+>))+)(=.*)?", span) for span in readme.spans]
    keys = [tuple(match[1].split(".")) for match in spans if match]
    keys = [key for key in keys if key[0] in RLVRConfig.model_fields]
    assert [".".join(key) for key in keys if first_unknown(RLVRConfig, key) is not None] == []


@cache
def metric_names() -> tuple[frozenset[str], list[re.Pattern[str]]]:
    """Names of metrics: those that functions give, the texts in the code, and patterns for those put together."""
    import torch

    from roll_core.algorithms.metrics import group_metrics, length_metrics, score_metrics

    lengths, scores, group = torch.tensor([3, 4, 5, 6]), torch.tensor([1.0, 0, 1, 0]), torch.tensor([0, 0, 1, 1])
    known = set(length_metrics(lengths, lengths, scores, 6)) | set(score_metrics(scores, scores))
    known |= set(group_metrics(group, scores, lengths, scores))
    patterns = []
    for path in (REPOSITORY / "roll_core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                known.add(node.value)
            elif isinstance(node, ast.JoinedStr) and "/" in str(getattr(node.values[0], "value", "")):
                parts = [re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"(<?\w+>?)" for p in node.values]
                patterns.append(re.compile("".join(parts)))
    return frozenset(known), patterns


def is_metric(name: str) -> bool:
    known, patterns = metric_names()
    matches = [match for pattern in patterns if (match := pattern.fullmatch(name))]
    # What a pattern leaves open must be a word of the code at least.
    return name in known or any({part.strip("<>") for part in match.groups()} <= code_words() for match in matches)


@each_readme
def test_metrics_have_the_names_that_runs_give_them(readme: Readme) -> None:
    named = [span for span in readme.spans if re.fullmatch(r"[a-z_]+(/(<\w+>|[a-z_]+))+", span)]
    files = {name for name in named if (readme.path.parent / name).exists() or name.startswith("output/")}
    assert [name for name in named if name not in files and not is_metric(name)] == []


def test_a_metric_that_no_run_has_would_be_seen() -> None:
    wrong = ["reward/men", "time/step_totl", "reward_status/tiemout", "val_correct/all/average", "group/zero_std"]
    assert [name for name in wrong if is_metric(name)] == []
    assert is_metric("reward/mean") and is_metric("val_correct/<tag>/mean") and is_metric("reward_status/timeout")


def map_of(readme: Readme) -> set[str]:
    [block] = [block for block in readme.blocks if readme.text.partition(block.text)[0].endswith("## The map\n\n```\n")]
    return {name for line in block.text.splitlines() for name in re.split(r"\s{2,}", line)[0].split()}


def test_the_first_map_has_everything_that_is_in_the_repository() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout, so what belongs to the repository cannot be told")
    tops = {line.partition("/")[0] for line in done.stdout.splitlines()} - {".gitignore"}
    assert {name.partition("/")[0] for name in map_of(FIRST)} >= tops
    assert [name for name in sorted(map_of(FIRST)) if not (REPOSITORY / name).exists()] == []


def test_the_map_of_core_has_every_file_and_folder() -> None:
    core = REPOSITORY / "roll_core"
    modules = {path.name for path in core.glob("[!_]*.py")}
    folders = {f"{path.name}/" for path in core.iterdir() if any(path.glob("*.py"))}
    assert map_of(CORE) == modules | folders


@pytest.mark.parametrize("folder", ["examples", "plugins"])
def test_every_folder_of_examples_and_plugins_is_named(folder: str) -> None:
    text = (REPOSITORY / folder / "README.md").read_text(encoding="utf-8")
    inner = [path.name for path in (REPOSITORY / folder).iterdir() if path.is_dir() and path.name[0] not in "._"]
    assert [name for name in inner if name not in text] == []


def test_the_table_of_what_there_is_has_all_of_it_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = ("roll_ascend", "roll_cuda", "roll_transferqueue")
    for package in packages:
        monkeypatch.syspath_prepend(str(REPOSITORY / "plugins" / package))
    points = [metadata.EntryPoint(package, f"{package}.plugin", "roll_core") for package in packages]
    registry = load_plugins({}, points)
    assert [record.problem for record in registry.unusable()] == []
    there = {NOUN_OF_KIND[kind]: {backend.name for _, backend in registry.offers(kind)} for kind in HOOK_OF_KIND}
    there |= {"reward": set(BUILTIN_REWARDS), "query filter": set(BUILTIN_FILTERS), "tracker": set(BUILTIN_TRACKERS)}
    there["environment"] = set(BUILTIN_ENVIRONMENTS)
    there["advantage estimator"] = set(get_args(Estimator))
    there["env manager"] = set(MANAGERS)
    told: dict[str, set[str]] = {}
    for kind, names, *_ in FIRST.table("## What there is"):
        told.setdefault(kind, set()).update(names_in(names))
    assert told == there


def test_the_quickstart_prints_the_lines_that_are_shown_of_it() -> None:
    [shown] = [block.text for block in FIRST.blocks if "RESULT" in block.text]
    lines = shown.splitlines()
    counts = {line.rsplit(None, 2)[0].strip(): [int(count) for count in line.split()[-2:]] for line in lines[6:9]}
    assert list(counts) == ["right", "carry forgot", "other"]
    assert [sum(column) for column in zip(*counts.values())] == [256, 256]
    before, after = (count / 256 for count in counts["right"])
    files = dict(re.findall(r"^  (\w+): +(\S+)$", shown, re.MULTILINE))
    assert summary_lines(RunSummary("quickstart", 50, 50, 60, before, after, files)) == lines[:5]
    assert lines[-1].startswith(f"RESULT before={before:.2f} after={after:.2f} seconds=")
    script = (REPOSITORY / "examples" / "quickstart" / "run.py").read_text(encoding="utf-8")
    assert [label for label in ("held-out answers by kind:", "learning curve: ", *counts) if label not in script] == []


def members(node: ast.ClassDef) -> dict[str, str]:
    """Public members of a class: facts with type and default, methods with decorators and signature."""
    found = {}
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            found[ast.unparse(member.target)] = ast.unparse(member)
        if isinstance(member, ast.FunctionDef) and (member.name == "__init__" or member.name[0] != "_"):
            member.body = [ast.Expr(ast.Constant(...))]
            found[member.name] = ast.unparse(member)
    return found


@cache
def classes_of_core() -> dict[str, ast.ClassDef]:
    files = [*(REPOSITORY / "roll_core").glob("*/base.py"), REPOSITORY / "roll_core" / "backend.py"]
    nodes = [node for path in files for node in ast.parse(path.read_text(encoding="utf-8")).body]
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


QUOTED = [
    node
    for block in PLUGINS.of("python")
    if not block.file
    for node in ast.parse(block.text).body
    if isinstance(node, ast.ClassDef)
]


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda node: node.name)
def test_a_class_in_the_docs_is_the_one_in_the_code(quoted: ast.ClassDef) -> None:
    assert members(quoted) == members(classes_of_core()[quoted.name])


def test_every_class_that_a_plugin_fills_is_in_the_docs() -> None:
    needed = {"Backend", "Availability", "Platform", "TrainStrategy", "InferStrategy", "Transport", "ModelPatch"}
    assert {node.name for node in QUOTED} == needed


def test_every_contract_is_in_the_docs() -> None:
    found = {}
    for path in (REPOSITORY / "roll_core" / "testing").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Contract") and node.bases:
                found[node.name] = f"roll_core.testing.{path.stem}"
    assert {names_in(row[0])[0]: names_in(row[1])[0] for row in PLUGINS.table("## Contracts")} == found


@each_readme
def test_no_python_in_the_docs_is_neither_compared_nor_run(readme: Readme) -> None:
    strangers = [node for block in readme.of("python") if not block.file for node in ast.parse(block.text).body]
    assert [ast.unparse(node) for node in strangers if getattr(node, "name", "") not in classes_of_core()] == []


def test_the_signature_of_every_hook_is_a_heading() -> None:
    tree = ast.parse((REPOSITORY / "roll_core" / "hookspecs.py").read_text(encoding="utf-8"))
    hooks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.returns is not None]
    signatures = {f"`{hook.name}({ast.unparse(hook.args)}) -> {ast.unparse(hook.returns)}`" for hook in hooks}
    assert {heading for heading in PLUGINS.headings if heading.startswith("`roll_")} == signatures
