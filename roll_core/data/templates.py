"""Chat templates: from a dialogue to the text a model is given, by the names that configs use.

Most names mean the template that ships with the tokenizer. The text is rendered first and tokenised later, in one
batch: that is faster, and it does not depend on what `apply_chat_template` returns, which is a list of ids in
transformers 4 and a mapping in transformers 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roll_core.data.messages import Message
from roll_core.data.placeholders import PLACEHOLDER, parts_of
from roll_core.data.tags import nearest
from roll_core.errors import ConfigError, DataError, Problem

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Render = Callable[["PreTrainedTokenizerBase", Sequence[Message]], str]


@dataclass(frozen=True)
class TemplateChoice:
    """Which template a row gets: that of its tag, else `global_template`, else the role's own `data_args.template`.

    Raises:
        ConfigError: a name that no template has.
    """

    template: str = "native"
    global_template: str | None = None
    tag_to_template: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {"data_args.template": self.template}
        named |= {"global_template": self.global_template} if self.global_template else {}
        named |= {f"tag_to_template.{tag}": name for tag, name in self.tag_to_template.items()}
        problems = [problem for path, name in named.items() for problem in template_problems(path, name)]
        if problems:
            raise ConfigError(problems)

    def name_for(self, tag: str) -> str:
        """The template's name for rows of a tag."""
        return self.tag_to_template.get(tag) or self.global_template or self.template


def template_problems(path: str, name: str) -> list[Problem]:
    """What is wrong with a template's name at a key of the config; needs no tokenizer."""
    if name in TEMPLATES:
        return []
    close = nearest(name, list(TEMPLATES))
    advice = f"did you mean '{close}'? " if close else ""
    return [Problem(path, "no chat template has this name", name, f"{advice}known templates: {', '.join(TEMPLATES)}")]


def render(name: str, tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
    """The text of a dialogue, up to where the assistant's answer begins.

    Raises:
        DataError: the template is the tokenizer's own and it has none, or the dialogue does not suit the template.
    """
    return TEMPLATES[name](tokenizer, messages)


def render_with_images(name: str, tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], markup: str) -> str:
    """As `render`, for a dialogue with placeholders; `markup` is the model's own text for an image.

    A chat template of the tokenizer is given a list of parts, as those of models with images take it.

    Raises:
        DataError: as of `render`.
    """
    if name in OWN:
        with_parts = [{**message, "content": parts_of(str(message["content"]))} for message in messages]
        try:
            return render(name, tokenizer, with_parts)
        except TypeError as error:
            raise DataError(
                f"the tokenizer's chat template takes text only, and the row has images: {error}"
                "\n  try: set data_args.template to chatml"
            ) from error
    with_markup = [{**message, "content": str(message["content"]).replace(PLACEHOLDER, markup)} for message in messages]
    return render(name, tokenizer, with_markup)


def _own(**options: object) -> Render:
    """The template that ships with the tokenizer. `options` are variables of the template."""

    def render_own(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
        if not tokenizer.chat_template:
            raise DataError(
                f"the tokenizer at '{tokenizer.name_or_path}' has no chat template of its own\n"
                "  try: set data_args.template to chatml (or base, for a model that never saw a chat format)"
            )
        return _apply(tokenizer, messages, **options)

    return render_own


def _apply(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], **options: Any) -> str:
    from jinja2.exceptions import TemplateError

    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **options)
    except TemplateError as error:
        roles = ", ".join(str(message["role"]) for message in messages)
        raise DataError(f"the tokenizer's chat template refused a dialogue of {roles}: {error}") from error
    return str(text)


def _then(render_start: Render, ending: str) -> Render:
    return lambda tokenizer, messages: render_start(tokenizer, messages) + ending


def _chatml(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
    turns = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


def _single_question(before: str, after: str) -> Render:
    def render_question(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
        if len(messages) != 1 or messages[0]["role"] != "user":
            roles = ", ".join(str(message["role"]) for message in messages)
            raise DataError(
                f"this template takes a dialogue of one user turn, found {roles}\n"
                "  try: the template native or chatml, which take any dialogue"
            )
        return f"{before}{messages[0]['content']}{after}"

    return render_question


TEMPLATES: dict[str, Render] = {
    "native": _own(),
    "native_nonthinking": _own(enable_thinking=False),
    "qwen2_5": _own(),
    "qwen2-vl": _own(),
    "qwen3": _own(enable_thinking=True),
    "qwen3_coder": _own(),
    "qwen3_nothink": _own(enable_thinking=False),
    "longcot_V3": _then(_own(), "<think>\n"),
    "chatml": _chatml,
    "base": _single_question("User: ", "\n\nAssistant:"),
    "empty": _single_question("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
}
"""Name -> template. `qwen2_5` is the tokenizer's own, as in published configs, which use the name with other models;
so are `qwen2-vl` and `qwen3_coder`, whose models bring theirs, and `qwen3_nothink` is `native_nonthinking`.
`chatml` adds no system turn. `base` is plain text for models that never saw a chat format."""

OWN = tuple(name for name in TEMPLATES if name not in ("chatml", "base", "empty"))
"""Those that are the tokenizer's own."""
