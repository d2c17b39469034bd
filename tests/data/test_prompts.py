from __future__ import annotations

import pytest

from roll_core.data.prompts import PromptDataset
from roll_core.data.rows import Row
from roll_core.data.templates import TemplateChoice
from roll_core.errors import DataError

CHATML = TemplateChoice("chatml")
AROUND = len("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n")


def rows(*texts: str, tag: str = "math_rule") -> list[Row]:
    return [
        Row(f"{tag}-{n}", ({"role": "user", "content": text},), text, tag, tag, file="rows.jsonl", line=n)
        for n, text in enumerate(texts, start=1)
    ]


def test_prompts_are_the_rendered_text_as_ids_and_nothing_more(tokenizer):
    dataset = PromptDataset(rows("1+1?", "2+2?"), tokenizer, 100, CHATML)
    assert [tokenizer.decode(prompt.token_ids) for prompt in dataset] == [
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in ("1+1?", "2+2?")
    ]
    assert isinstance(dataset[0].token_ids, tuple) and dataset[0].domain == "math_rule"
    assert str(dataset.report) == "2 of 2 prompts kept"


def test_prompts_equal_those_of_the_tokenizers_own_method(tokenizer):
    [row] = rows("1+1?")
    [prompt] = PromptDataset([row], tokenizer, 100)
    ids = tokenizer.apply_chat_template(
        [dict(m) for m in row.messages], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert list(prompt.token_ids) == ids


def test_a_beginning_token_of_the_template_is_not_doubled(tokenizer):
    tokenizer = PreTrained(tokenizer)
    [prompt] = PromptDataset(rows("1+1?"), tokenizer, 100, CHATML)
    assert tokenizer.asked == {"add_special_tokens": False}
    assert len(prompt.token_ids) == AROUND + 4


class PreTrained:
    """A tokenizer that notes whether it was asked to add tokens of its own."""

    def __init__(self, inner) -> None:
        self.inner, self.asked = inner, {}

    def __call__(self, texts, add_special_tokens=True, **rest):
        self.asked = {"add_special_tokens": add_special_tokens}
        return self.inner(texts, add_special_tokens=add_special_tokens, **rest)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_prompts_of_exactly_the_limit_are_kept_and_longer_ones_are_counted(tokenizer):
    dataset = PromptDataset(rows("x" * 10, "x" * 11, "x" * 30, "x"), tokenizer, AROUND + 10, CHATML)
    assert [prompt.row.line for prompt in dataset] == [1, 4]
    assert (dataset.report.kept, dataset.report.too_long, dataset.report.dropped) == (2, 2, 2)
    assert str(dataset.report) == (
        f"2 of 4 prompts kept; 2 dropped as longer than prompt_length {AROUND + 10} tokens "
        f"(the longest has {AROUND + 30}, rows.jsonl:3)"
    )


def test_nothing_left_is_an_error_that_says_why(tokenizer):
    with pytest.raises(DataError) as error:
        PromptDataset(rows("long"), tokenizer, 5, CHATML)
    assert str(error.value) == (
        f"no prompt is left to train on: 0 of 1 prompts kept; 1 dropped as longer than prompt_length 5 tokens "
        f"(the longest has {AROUND + 4}, rows.jsonl:1)\n  try: raise prompt_length to {AROUND + 4}"
    )
    with pytest.raises(DataError, match="no prompt is left to train on: 0 of 0 prompts kept"):
        PromptDataset([], tokenizer, 5, CHATML)


def test_each_tag_gets_its_template(tokenizer):
    choice = TemplateChoice("chatml", tag_to_template={"code": "base"})
    dataset = PromptDataset([*rows("a"), *rows("b", tag="code")], tokenizer, 100, choice)
    assert [prompt.template for prompt in dataset] == ["chatml", "base"]
    assert tokenizer.decode(dataset[1].token_ids) == "User: b\n\nAssistant:"


def test_a_template_that_refuses_a_row_names_the_row(tokenizer):
    turns = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    row = Row("1", turns, "u", "math_rule", "math_rule", file="rows.jsonl", line=7)
    with pytest.raises(DataError, match=r"^rows.jsonl:7: template 'base': this template takes a dialogue of one user"):
        PromptDataset([row], tokenizer, 100, TemplateChoice("base"))


def test_the_fingerprint_follows_ids_tokens_and_order(tokenizer):
    def fingerprint(*texts: str, template: TemplateChoice = CHATML) -> str:
        return PromptDataset(rows(*texts), tokenizer, 100, template).fingerprint

    assert fingerprint("a", "b") == fingerprint("a", "b")
    others = [fingerprint("b", "a"), fingerprint("a"), fingerprint("a", "c"), fingerprint("a", "b", template=BASE)]
    assert len({fingerprint("a", "b"), *others}) == 5


BASE = TemplateChoice("base")
