"""Prompts as token ids: what is left of the rows once a template and a length limit were applied."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roll_core.data.images import PixelLimits
from roll_core.data.rows import Row
from roll_core.data.templates import TemplateChoice, render, render_with_images
from roll_core.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from roll_core.data.vision import Pictures, Vision


@dataclass(frozen=True)
class Prompt:
    """A row and its prompt as token ids, unpadded, ending where the answer begins.

    Where there are `pictures`, an image is as many tokens as the model reads of it.
    """

    row: Row
    token_ids: tuple[int, ...]
    template: str
    pictures: Pictures | None = None

    @property
    def domain(self) -> str:
        """The reward that grades the answer."""
        return self.row.domain


@dataclass(frozen=True)
class FilterReport:
    """How many prompts the length filter kept, and why it dropped the others.

    `longest` is the token count of the longest prompt, kept or not; `example` names the file and line of that row.
    """

    kept: int
    too_long: int
    empty: int
    limit: int
    longest: int
    example: str

    @property
    def dropped(self) -> int:
        """Prompts not kept, for any reason."""
        return self.too_long + self.empty

    def __str__(self) -> str:
        text = f"{self.kept} of {self.kept + self.dropped} prompts kept"
        if self.too_long:
            longest = f"the longest has {self.longest}, {self.example}"
            text += f"; {self.too_long} dropped as longer than prompt_length {self.limit} tokens ({longest})"
        if self.empty:
            text += f"; {self.empty} dropped as empty"
        return text


class PromptDataset:
    """The prompts of some rows, in the order of the rows, without those that are too long.

    Kept are prompts of 1 to `prompt_length` tokens; nothing is truncated. (ROLL also drops prompts of five tokens or
    fewer; here a short prompt is kept, as nothing is wrong with it.)

    `vision` reads the images of rows that have some, within `limits`.

    Raises:
        DataError: no prompt is left, or a row has images and there is no `vision`.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        tokenizer: PreTrainedTokenizerBase,
        prompt_length: int,
        templates: TemplateChoice | None = None,
        vision: Vision | None = None,
        limits: PixelLimits | None = None,
    ) -> None:
        templates = templates or TemplateChoice()
        names = [templates.name_for(row.tag) for row in rows]
        ids = _tokenise(rows, names, tokenizer, vision)
        prompts = [_with_pictures(Prompt(*parts), vision, limits or PixelLimits()) for parts in zip(rows, ids, names)]
        self._prompts = [prompt for prompt in prompts if 0 < len(prompt.token_ids) <= prompt_length]
        self.report = _report(prompts, prompt_length)
        if not self._prompts:
            hint = f"raise prompt_length to {self.report.longest}" if self.report.too_long else "add rows"
            raise DataError(f"no prompt is left to train on: {self.report}\n  try: {hint}")

    def __len__(self) -> int:
        return len(self._prompts)

    def __getitem__(self, index: int) -> Prompt:
        return self._prompts[index]

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self._prompts)

    @property
    def domains(self) -> list[str]:
        """The domain of each prompt, in order; what a `PromptSampler` is made from."""
        return [prompt.domain for prompt in self._prompts]

    @property
    def fingerprint(self) -> str:
        """A text that changes when an id, an order or a token of the prompts changes. A checkpoint keeps it."""
        digest = hashlib.sha256()
        for prompt in self._prompts:
            digest.update(f"{prompt.row.id!r} {prompt.domain!r} {prompt.token_ids}\n".encode())
            for source in prompt.row.images:
                digest.update(f"{source.name}\n".encode())
        return digest.hexdigest()[:16]


def _tokenise(
    rows: Sequence[Row], names: Sequence[str], tokenizer: PreTrainedTokenizerBase, vision: Vision | None
) -> list[tuple[int, ...]]:
    """Special tokens are in the rendered text already, so the tokenizer must not add its own."""
    if not rows:
        return []
    texts = []
    for row, name in zip(rows, names):
        try:
            if row.images and vision is None:
                raise DataError("the row has images, and nothing reads images here")
            if row.images and vision is not None:
                texts.append(render_with_images(name, tokenizer, row.messages, vision.markup(tokenizer)))
            else:
                texts.append(render(name, tokenizer, row.messages))
        except DataError as error:
            raise DataError(f"{row.file}:{row.line}: template '{name}': {error}") from error
    encoded = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
    return [tuple(ids) for ids in encoded["input_ids"]]


def _with_pictures(prompt: Prompt, vision: Vision | None, limits: PixelLimits) -> Prompt:
    """The prompt with its image tokens as many as the model reads, and its images."""
    if not prompt.row.images or vision is None:
        return prompt
    from roll_core.data.vision import Pictures

    row = prompt.row
    pictures = Pictures(row, vision, limits, prompt.token_ids)
    counts = vision.num_tokens(pictures.features())
    try:
        long_ids = vision.lengthen(prompt.token_ids, counts)
    except DataError as error:
        raise DataError(f"{row.file}:{row.line}: template '{prompt.template}': {error}") from error
    return Prompt(row, long_ids, prompt.template, pictures)


def _report(prompts: Sequence[Prompt], limit: int) -> FilterReport:
    lengths = [len(prompt.token_ids) for prompt in prompts]
    longest = max(lengths, default=0)
    row = prompts[lengths.index(longest)].row if prompts else None
    too_long = sum(length > limit for length in lengths)
    empty = lengths.count(0)
    where = f"{row.file}:{row.line}" if row else ""
    return FilterReport(len(prompts) - too_long - empty, too_long, empty, limit, longest, where)
