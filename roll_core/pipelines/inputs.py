"""Data files to prompts: what is read before anything starts, and what needs the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roll_core.config.machine import columns_of
from roll_core.config.schema import DataArgs, RLVRConfig, WorkerConfig
from roll_core.data.images import PixelLimits
from roll_core.data.jsonl import load_rows, tag_routes
from roll_core.data.rows import Row
from roll_core.data.templates import TemplateChoice
from roll_core.errors import ConfigError, DataError, Problem

if TYPE_CHECKING:
    from roll_core.data.prompts import PromptDataset
    from roll_core.data.sampler import PromptSampler
    from roll_core.data.vision import Vision


@dataclass(frozen=True)
class Rows:
    """Checked rows of the data files."""

    training: Sequence[Row]
    validation: Sequence[Row]


@dataclass(frozen=True)
class Inputs:
    """Prompts as token ids, the order they come in, and the tokenizer that made them."""

    tokenizer: Any
    dataset: PromptDataset
    sampler: PromptSampler
    held_out: PromptDataset | None
    stop_token_ids: tuple[int, ...]
    pad_token_id: int
    excluded_token_ids: tuple[int, ...] = ()
    """Tokens that an answer must not have: those that stand for images."""


@dataclass(frozen=True)
class RolloutInputs:
    """The prompts of a run that trains nothing, and the tokenizer that made them."""

    tokenizer: Any
    dataset: PromptDataset
    stop_token_ids: tuple[int, ...]
    excluded_token_ids: tuple[int, ...]


def read_rows(config: RLVRConfig) -> Rows:
    """Read and check all data files; standard library only.

    Raises:
        DataError: with every bad row, by file and line.
        ConfigError: no data file is named, or two rewards claim one tag.
    """
    routes = tag_routes(config.rewards)
    files = config.actor_train.data_args
    if files is None or not files.file_name:
        raise ConfigError([Problem("actor_train.data_args.file_name", "names no data file", hint="a JSONL file")])
    validation: Sequence[Row] = []
    if config.validation is not None and config.validation.data_args is not None:
        validation = _load(config.validation.data_args, files, routes)
    return Rows(_load(files, files, routes), validation)


def prepare_inputs(config: RLVRConfig, rows: Rows, notify: Callable[[str], None]) -> Inputs:
    """Tokenise, filter by length (saying how many rows that dropped), and set up the order of prompts."""
    from transformers import AutoTokenizer

    from roll_core.data.prompts import PromptDataset
    from roll_core.data.sampler import PromptSampler

    folder = config.actor_train.model_args.model_name_or_path
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    vision, excluded = _vision(folder, [*rows.training, *rows.validation])
    files = config.actor_train.data_args
    dataset = PromptDataset(
        rows.training,
        tokenizer,
        config.prompt_length,
        _templates(config, config.actor_train),
        vision,
        _limits(files),
    )
    _tell_dropped("training", dataset, notify)
    held_out = None
    if rows.validation and config.validation is not None:
        limit = config.val_prompt_length or config.prompt_length
        limits = _limits(config.validation.data_args)
        templates = _templates(config, config.validation)
        held_out = PromptDataset(rows.validation, tokenizer, limit, templates, vision, limits)
        _tell_dropped("validation", held_out, notify)
    mixture = (files or DataArgs()).domain_interleave_probs
    sampler = PromptSampler(
        dataset.domains, config.rollout_batch_size, config.seed, mixture, fingerprint=dataset.fingerprint
    )
    stops = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (*stops, 0)[0]
    return Inputs(tokenizer, dataset, sampler, held_out, stops, int(pad), excluded)


def prepare_rollout_inputs(config: RLVRConfig, notify: Callable[[str], None]) -> RolloutInputs:
    """Read and tokenise the prompts of `validation`; raises as `read_rows`."""
    from transformers import AutoTokenizer

    from roll_core.data.prompts import PromptDataset

    validation = config.validation
    assert validation is not None and validation.data_args is not None, "the config's problems name it"
    files = validation.data_args
    rows = _load(files, config.actor_train.data_args or files, tag_routes(config.rewards))
    folder = config.actor_infer.model_args.model_name_or_path
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    vision, excluded = _vision(folder, rows)
    limit = config.val_prompt_length or config.prompt_length
    dataset = PromptDataset(rows, tokenizer, limit, _templates(config, validation), vision, _limits(files))
    _tell_dropped("validation", dataset, notify)
    stops = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
    return RolloutInputs(tokenizer, dataset, stops, excluded)


def _load(files: DataArgs, training: DataArgs, routes: dict[str, str]) -> list[Row]:
    folder = files.dataset_dir or training.dataset_dir or ""
    return load_rows(files.file_name or (), folder, routes, columns_of(files))


def _vision(folder: str | None, every: Sequence[Row]) -> tuple[Vision | None, tuple[int, ...]]:
    """What reads images, where rows have some; and the tokens that stand for images, where the model has such.

    Raises:
        RollError: rows have images, and the model reads none.
        DataError: a model that reads images would be trained without those that rows seem to have.
    """
    from transformers import AutoConfig

    from roll_core.data.vision import Vision, reserved_tokens

    assert folder is not None, "the config's problems name it"
    reserved = reserved_tokens(AutoConfig.from_pretrained(folder, local_files_only=True))
    if any(row.images for row in every):
        return Vision(folder), reserved
    if reserved:
        for row in every:
            unread = [name for name in ("image", "images") if row.fields.get(name)]
            if unread:
                raise DataError(
                    f"{row.file}:{row.line}: the row has a column '{unread[0]}', the model reads images, and"
                    f" data_args.image names no column\n  try: actor_train.data_args.image: {unread[0]}"
                )
    return None, reserved


def _limits(files: DataArgs | None) -> PixelLimits:
    return PixelLimits() if files is None else PixelLimits(files.image_max_pixels, files.image_min_pixels)


def _templates(config: RLVRConfig, role: WorkerConfig) -> TemplateChoice:
    own = (role.data_args or DataArgs()).template
    return TemplateChoice(own or "native", config.global_template, config.tag_to_template)


def _tell_dropped(name: str, dataset: PromptDataset, notify: Callable[[str], None]) -> None:
    if dataset.report.dropped:
        notify(f"{name} data: {dataset.report}")
