from __future__ import annotations

import copy

import pytest

from roll_core.data.templates import OWN, TEMPLATES, TemplateChoice, render
from roll_core.errors import ConfigError, DataError

ONE = [{"role": "user", "content": "1+1?"}]
TWO = [{"role": "system", "content": "s"}, *ONE]
CHATML = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def without_template(tokenizer):
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = None
    return bare


@pytest.mark.parametrize("name", ["native", "qwen2_5", "qwen3", "chatml"])
def test_a_dialogue_ends_where_the_answer_begins(tokenizer, name):
    assert render(name, tokenizer, TWO) == CHATML


def test_thinking_can_be_turned_off_and_opened(tokenizer):
    assert (
        render("qwen2-vl", tokenizer, TWO) == render("qwen3_coder", tokenizer, TWO) == render("native", tokenizer, TWO)
    )
    assert render("qwen3_nothink", tokenizer, TWO) == render("native_nonthinking", tokenizer, TWO)
    assert render("native_nonthinking", tokenizer, TWO) == CHATML + "<think>\n\n</think>\n\n"
    assert render("longcot_V3", tokenizer, TWO) == CHATML + "<think>\n"


def test_single_questions_for_models_without_a_chat_format(without_template):
    assert render("base", without_template, ONE) == "User: 1+1?\n\nAssistant:"
    assert render("empty", without_template, ONE) == "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(DataError, match="takes a dialogue of one user turn, found system, user"):
        render("base", without_template, TWO)


@pytest.mark.parametrize("name", OWN)
def test_a_tokenizer_without_a_template_is_refused_where_its_own_is_asked(without_template, name):
    with pytest.raises(DataError) as error:
        render(name, without_template, ONE)
    assert str(error.value) == (
        "the tokenizer at '' has no chat template of its own\n"
        "  try: set data_args.template to chatml (or base, for a model that never saw a chat format)"
    )


def test_chatml_needs_no_template_of_the_tokenizer(without_template):
    assert render("chatml", without_template, TWO) == CHATML


def test_what_a_template_says_against_a_dialogue_is_passed_on(tokenizer):
    picky = copy.deepcopy(tokenizer)
    picky.chat_template = "{{ raise_exception('no system turn, please') }}"
    with pytest.raises(DataError, match=r"refused a dialogue of system, user: no system turn, please"):
        render("native", picky, TWO)


def test_a_tag_has_its_template_before_the_global_one_and_the_roles_own():
    choice = TemplateChoice("native", "chatml", {"code": "base"})
    assert (choice.name_for("code"), choice.name_for("math_rule")) == ("base", "chatml")
    assert TemplateChoice("qwen3").name_for("math_rule") == "qwen3"


def test_unknown_templates_are_reported_together():
    with pytest.raises(ConfigError) as error:
        TemplateChoice("chat_ml", None, {"math_rule": "nativ"})
    assert [(problem.path, problem.value) for problem in error.value.problems] == [
        ("data_args.template", "chat_ml"),
        ("tag_to_template.math_rule", "nativ"),
    ]
    assert error.value.problems[0].hint == f"did you mean 'chatml'? known templates: {', '.join(TEMPLATES)}"
