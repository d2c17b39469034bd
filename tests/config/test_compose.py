"""Files to configs: includes, references, overrides, and where configs are looked for."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from roll_core.config.compose import load_config, load_config_file, read_config
from roll_core.config.locate import find_file
from roll_core.config.schema import AgenticConfig, RLVRConfig
from roll_core.errors import ConfigError

Write = Callable[..., Path]


def message(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config_file(path, overrides)
    return str(caught.value)


def test_references_are_filled_in(write: Write) -> None:
    path = write(
        {"exp_name": "mine", "output_dir": "./out/${exp_name}", "my_length": 16, "response_length": "${my_length}"}
    )
    config = load_config_file(path)
    assert (config.output_dir, config.response_length) == ("./out/mine", 16)


def test_a_reference_to_nothing_names_where_it_stands_and_what_was_meant(write: Write) -> None:
    path = write({"actor_infer.generating_args": {"max_new_tokens": "${respons_length}"}})
    assert message(path) == (
        f"1 problem in {path}\n"
        "- actor_infer.generating_args.max_new_tokens: refers to ${respons_length}, which is not in this config\n"
        "    given: '${respons_length}'\n"
        "    try:   did you mean ${response_length}?"
    )


def test_every_broken_reference_is_reported(write: Write) -> None:
    found = message(write({"exp_name": "${a_name}", "output_dir": "${a_folder}", "seed": "???"}))
    assert "3 problems" in found
    assert "seed: is '???' and must be set" in found


def test_a_circle_of_references_is_reported(write: Write) -> None:
    assert "output_dir: ${logging_dir} refers to itself" in message(
        write({"output_dir": "${logging_dir}", "logging_dir": "${output_dir}"})
    )


def test_a_missing_variable_of_the_environment_is_named(write: Write) -> None:
    found = message(write({"pretrain": "${oc.env:NO_SUCH_VARIABLE_HERE}"}))
    assert "pretrain: cannot be worked out: Environment variable 'NO_SUCH_VARIABLE_HERE' not found" in found
    assert "\n    try:   set the variable, or write what holds without it: ${oc.env:NAME,default}" in found
    assert "${oc.env:NAME,default} is a variable" in message(write({"pretrain": "${env:HOME}"}))


def test_a_config_that_nests_without_end_is_refused(write: Write) -> None:
    assert message(write("seed: " + "[" * 5000 + "]" * 5000)).endswith("- is nested too deeply to be read")


def test_included_files_lie_under_the_file_itself(write: Write) -> None:
    write("my_settings: {stage: 3}\nseed: 1\nmax_steps: 11\n", "config/shared.yaml")
    path = write(
        "defaults:\n  - ../config/shared@_here_\nseed: 2\nresponse_length: 8\n"
        "actor_train: {strategy_args: {strategy_config: '${my_settings}'}}\n",
        "runs/a.yaml",
    )
    config = load_config_file(path)
    assert isinstance(config, RLVRConfig)
    assert (config.seed, config.max_steps, config.actor_train.strategy_config) == (2, 11, {"stage": 3})


def test_what_an_included_file_has_and_nobody_uses_gets_a_notice(write: Write) -> None:
    write("spare_setting: 3\n", "config/shared.yaml")
    path = write("defaults: [../config/shared@_here_]\nresponse_length: 8\n", "runs/a.yaml")
    assert load_config_file(path).notices[0] == (
        "spare_setting: has no effect; it comes from an included file and nothing refers to it"
    )


def test_the_same_key_in_the_file_itself_is_an_error(write: Write) -> None:
    assert "spare_setting: unknown key" in message(write({"spare_setting": 3}))


def test_an_include_that_is_not_there_is_named(write: Write) -> None:
    found = message(write("defaults: [../config/nothing@_here_]\n", "runs/a.yaml"))
    assert "- defaults: includes a file that is not there\n    given: '../config/nothing'" in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed: 1\nseed: 2\n", "is no YAML at line 2, column 1: found duplicate key seed"),
        ("seed: [1\n", "is no YAML at line 2, column 1: "),
        ("- 1\n", "must be a mapping of keys to values, it holds a list"),
        ("seed\n", "must be a mapping of keys to values, it holds one value: 'seed'"),
        ("", "is empty: it has no key"),
        ("# seed: 1\n---\n", "is empty: it has no key"),
        ("null\n", "is empty: it has no key"),
        ("a:\n\tb: 1\n", "is no YAML at line 2, column 1: found character '\\t' that cannot start any token"),
        ("exp_name: ${\n", "cannot be put together: no viable alternative at input '${'"),
        ("~: 1\n", "cannot be put together: Incompatible key type 'NoneType'"),
        ("a: &a {b: *a}\n", "is nested too deeply to be read"),
        ("a: &a [1, 2]\nb: *c\n", "is no YAML at line 2, column 4: found undefined alias 'c'"),
        ("seed: 1\0\n", "is no text: it has a zero byte at position 7"),
        ("a: 1\n" + "#" * 300_000, "has 0.3 MiB; a config has 256 KiB at most"),
    ],
)
def test_a_file_that_is_no_config_says_where(write: Write, text: str, problem: str) -> None:
    assert f"1 problem in {(path := write(text))}\n- {problem}" in message(path)


def test_a_file_in_another_encoding_says_where(write: Write) -> None:
    path = write("")
    path.write_bytes("# caf\u00e9\nseed: 1\n".encode("latin-1"))
    assert message(path) == (
        f"1 problem in {path}\n- is not UTF-8: byte 0xe9 at position 5\n    try:   save it as a text in UTF-8"
    )


def test_aliases_of_aliases_that_would_fill_the_memory_are_refused(write: Write) -> None:
    names = "abcdefgh"
    lines = [f"{name}: &{name} [{', '.join([f'*{of}'] * 9)}]" for of, name in itertools.pairwise(names)]
    assert "its aliases stand for more than 100,000 values" in message(write("\n".join(["a: &a [1]", *lines])))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("folder", "no config folder, which is a folder"),
        ("/", "no config /, which is a folder"),
        ("data.json", "data.json is no config: its name does not end in .yaml or .yml"),
        ("pipe.yaml", "pipe.yaml is no config: it is no regular file"),
        ("link.yaml", "no config link.yaml: it is a link to gone.yaml, which is not there"),
        ("x" * 300, "x.yaml cannot be looked at: File name too long"),
    ],
)
def test_a_path_that_leads_to_no_config_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "data.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "link.yaml").symlink_to("gone.yaml")
    with pytest.raises(ConfigError) as caught:
        find_file(name)
    assert problem in str(caught.value)


def test_overrides_win_and_may_add_keys_that_the_schema_has(write: Write) -> None:
    config = load_config_file(
        write(),
        [
            "max_steps=3",
            "resume_from_checkpoint=./output/models/qwen3-30BA3B-rlvr-npu/checkpoint-100",
            "actor_train.training_args.learning_rate=1e-5",
            "actor_train.strategy_args.strategy_config.fsdp_size=2",
            "actor_infer.device_mapping=[0]",
            "rewards.math_rule.tag_included=[a, b]",
            "+critic.world_size=2",
            "validation={data_args: {file_name: v.jsonl}}",
            "actor_train.data_args.domain_interleave_probs=null",
        ],
    )
    assert isinstance(config, RLVRConfig)
    assert config.max_steps == 3
    assert config.resume_from_checkpoint == "./output/models/qwen3-30BA3B-rlvr-npu/checkpoint-100"
    assert config.actor_train.training_args.learning_rate == 1e-5
    assert config.actor_train.strategy_config == {"param_dtype": "fp32", "fsdp_size": 2}
    assert config.actor_infer.devices == [0]
    assert config.rewards["math_rule"].tag_included == ["a", "b"]
    assert config.critic is not None and config.critic.world_size == 2
    assert config.validation is not None and config.validation.data_args is not None
    assert config.validation.data_args.file_name == ["v.jsonl"]
    assert config.actor_train.data_args is not None
    assert config.actor_train.data_args.domain_interleave_probs is None


def test_devices_may_be_overridden_as_an_expression(write: Write) -> None:
    config = load_config_file(write(), ["actor_train.device_mapping=list(range(0,2)) + [5]"])
    assert isinstance(config, RLVRConfig)
    assert config.actor_train.devices == [0, 1, 5]


def test_an_override_may_refer_to_other_keys(write: Write) -> None:
    assert load_config_file(write(), ["seed=5", "max_steps=${seed}"]).max_steps == 5


def test_a_key_can_be_removed(write: Write) -> None:
    config = load_config_file(write(), ["~actor_train.data_args.domain_interleave_probs"])
    assert isinstance(config, RLVRConfig)
    assert config.actor_train.data_args is not None
    assert config.actor_train.data_args.domain_interleave_probs is None


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            "max_step=3",
            "max_step: unknown key in the override 'max_step=3'\n    try:   did you mean 'max_steps'?",
        ),
        (
            "+actor_train.training_args.lerning_rate=1",
            "actor_train.training_args.lerning_rate: unknown key in the override "
            "'+actor_train.training_args.lerning_rate=1'\n    try:   did you mean 'learning_rate'?",
        ),
        (
            "seed.x=1",
            "seed.x: unknown key in the override 'seed.x=1'\n    try:   seed has no keys of its own",
        ),
        (
            "rewards.math_rule.wrld_size=1",
            "rewards.math_rule.wrld_size: unknown key in the override 'rewards.math_rule.wrld_size=1'\n"
            "    try:   did you mean 'world_size'?",
        ),
        (
            "max_steps",
            "cannot read the override 'max_steps': there is no '=' in it\n"
            "    try:   write key=value, with dots between the parts of the key",
        ),
        ("max_steps=1,2", "cannot read the override 'max_steps=1,2': it lists several values, and a run has one"),
        (
            "actor_train.data_args.file_name=[my d\u00e4t\u00e4.jsonl, b.jsonl]",
            "cannot read the override 'actor_train.data_args.file_name=[my d\u00e4t\u00e4.jsonl, b.jsonl]': "
            "token recognition error at: '\u00e4'\n"
            "    try:   put items with special characters in quotes of their own: "
            '\'actor_train.data_args.file_name=["my d\u00e4t\u00e4.jsonl","b.jsonl"]\'',
        ),
    ],
)
def test_a_bad_override_is_refused_with_a_suggestion(write: Write, override: str, problem: str) -> None:
    assert f"- {problem}" in message(write(), override)


def test_a_config_is_found_relative_to_here_to_examples_or_absolutely(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({"seed": 1}, "mine/run.yaml")
    write({"seed": 2}, "examples/theirs/run.yaml")
    monkeypatch.chdir(tmp_path)
    assert load_config("mine", "run").seed == 1
    assert load_config("theirs", "run").seed == 2
    assert load_config("examples/theirs", "run.yaml").seed == 2
    assert load_config(tmp_path / "mine", "run").seed == 1
    assert load_config("ascend_examples", "qwen3_30b_rlvr_fsdp2").seed == 42


def test_a_config_that_is_not_there_lists_the_places_and_what_they_have(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({}, "mine/run.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_config("mine", "runn")
    found = str(caught.value)
    assert f"looked in {tmp_path}/mine: it has run.yaml" in found
    assert f"looked in {tmp_path}/examples/mine: there is no such folder" in found
    assert "did you mean 'run'?" in found
    with pytest.raises(ConfigError) as caught:
        load_config_file("mine")
    assert f"no config mine, which is a folder\n    looked in {tmp_path}/mine: it has run.yaml" in str(caught.value)


def test_an_override_with_its_items_in_quotes_is_read_as_the_hint_says(write: Write) -> None:
    override = 'actor_train.data_args.file_name=["my d\u00e4t\u00e4.jsonl","b.jsonl"]'
    data = load_config_file(write(), [override]).actor_train.data_args
    assert data is not None and data.file_name == ["my d\u00e4t\u00e4.jsonl", "b.jsonl"]


def test_the_experiment_is_named_after_the_file_unless_it_says_otherwise(write: Write) -> None:
    assert load_config_file(write({}, "nice_run.yaml")).exp_name == "nice_run"
    assert load_config_file(write({"exp_name": "mine"})).exp_name == "mine"


def test_reading_leaves_no_file_and_no_state_behind(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hydra.core.global_hydra import GlobalHydra

    path = write({"hydra": {"run": {"dir": "."}, "output_subdir": None}})
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    for _ in range(2):
        load_config_file(path)
    assert sorted(tmp_path.iterdir()) == before
    assert not GlobalHydra.instance().is_initialized()


def test_hydra_in_the_middle_of_something_else_is_left_as_it_was(write: Write) -> None:
    from hydra import compose, initialize_config_dir

    path = write({"seed": 4})
    with initialize_config_dir(version_base="1.3", config_dir=str(path.parent)):
        load_config_file(path)
        assert compose("run").seed == 4


def test_problems_of_rules_come_with_those_of_keys(write: Write) -> None:
    found = message(write({"rollout_batch_size": 3, "sed": 1}))
    assert "2 problems" in found
    assert "3 * num_return_sequences_in_group 4 = 12 responses must be a multiple of the 16 rows" in found


def test_no_problem_is_made_up_from_a_value_that_could_not_be_read(write: Write) -> None:
    reading = read_config(write({"rollout_batch_size": "lots", "max_steps": "many"}))
    assert [problem.path for problem in reading.problems] == ["max_steps", "rollout_batch_size"]
    assert reading.rule_problems() == []


def test_the_pipeline_is_told_by_the_keys(write: Write) -> None:
    kinds = {
        "rewards: {math_rule: {}}\n": "rlvr",
        "train_env_manager: {}\n": "agentic",
        "sft_train: {}\n": "sft",
        "student: {}\nteacher: {}\n": "distill",
        "beta: 0.1\nchosen_key: chosen\nactor_train: {}\n": "dpo",
        "seed: 1\n": "rlvr",
    }
    for text, kind in kinds.items():
        reading = read_config(write(text))
        assert (reading.pipeline, reading.problems) == (kind, [])


def test_keys_of_another_pipeline_are_refused(write: Write) -> None:
    with pytest.raises(ConfigError, match="train_env_manager: unknown key"):
        load_config_file(write("train_env_manager: {}\n"), pipeline="rlvr")
    assert isinstance(load_config_file(write("train_env_manager: {}\n")), AgenticConfig)
