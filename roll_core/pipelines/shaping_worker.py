"""From a scored batch to what training is given: in this process, or in a worker that reads the rows by reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from roll_core.cluster.spec import WorkerSpec
from roll_core.cluster.worker import Worker, load_tokenizer
from roll_core.config.schema import AgenticConfig, PPOConfig, RLVRConfig
from roll_core.data import DataProto
from roll_core.data.answers import TEXT_COLUMN, RowStore
from roll_core.data.padding import PADDINGS, padded, response_mask
from roll_core.data.remote_batch import BatchReader, RowRemoteBatch, put_batch
from roll_core.display import Sample as ShownSample
from roll_core.pipelines.agentic_shaping import EpisodeShaper
from roll_core.pipelines.minibatches import Rows
from roll_core.pipelines.remote_rollout import RemoteRollout
from roll_core.pipelines.shaping import Shaper
from roll_core.pipelines.step_metrics import batch_metrics
from roll_core.pipelines.step_report import StepSummary, records, shown, summary_of, write_lines
from roll_core.pipelines.weighting import MiniBatch, policy_batches, policy_loss, sent, tokens_of, value_batches
from roll_core.transport import Transport


class Shapes(Protocol):
    """A `Shaper`, or an `EpisodeShaper`."""

    def __call__(self, batch: DataProto) -> tuple[DataProto, dict[str, float]]:
        """The batch with advantages and masks, and metrics."""


@dataclass(frozen=True)
class Shaped:
    """What training and reporting are given: a batch, or mini-batches by reference and a summary."""

    metrics: Mapping[str, float]
    actor: DataProto | Sequence[MiniBatch]
    critic: DataProto | Sequence[MiniBatch]
    told: DataProto | StepSummary
    is_empty: bool


@dataclass(frozen=True)
class ShapedRemotely:
    """What a worker made of a step, and what the shaper carries over to the next one."""

    shaped: Shaped
    state: Mapping[str, Any]


def shape(shaper: Shapes, batch: DataProto) -> Shaped:
    """Shape a batch in this process."""
    batch, metrics = shaper(batch)
    metrics |= batch_metrics(batch, batch.meta_info["max_response_length"])
    return Shaped(metrics, batch, batch, batch, is_empty=not bool(torch.any(batch["final_response_mask"])))


class RemoteShaper:
    """Does on rows by reference what needs a whole step at once, so that the driver never holds one.

    Computes what the driver computes where there is no transport, with the same functions on the same columns.
    """

    def __init__(self, config: PPOConfig) -> None:
        self.config, self.shaper = config, shaper_of(config)
        self._reader: BatchReader | None = None
        self._text_of: dict[int, str] = {}
        self._tokenizer: Any = None

    def shape(self, rollout: RemoteRollout, state: Mapping[str, Any], step: int, store: RowStore) -> ShapedRemotely:
        """A step's rows shaped, and cut into mini-batches whose columns are in the store."""
        reader = self._reader = self._reader or BatchReader(store.open())
        self.shaper.load_state_dict(state)
        shaped = shape(self.shaper, _batch(reader, rollout, self.config))
        batch = shaped.told
        assert isinstance(batch, DataProto)
        cutting = _Cutting(self.config, reader.transport, store.partition, rollout.rows, batch)
        actor = [] if shaped.is_empty or step <= self.config.critic_warmup else list(cutting.actor(step))
        critic = [] if shaped.is_empty else list(cutting.critic(step))
        summary = summary_of(batch, self._shown(reader, rollout, batch))
        if self.config.rollout_dump_dir:
            self._dump(reader, rollout, batch, step)
        return ShapedRemotely(Shaped(shaped.metrics, actor, critic, summary, shaped.is_empty), self.shaper.state_dict())

    def _shown(self, reader: BatchReader, rollout: RemoteRollout, batch: DataProto) -> list[ShownSample]:
        rows = list(rollout.shown)
        if not rows:
            return []
        texts = reader.materialize(rollout.rows.index(rows), [TEXT_COLUMN])[TEXT_COLUMN]
        some = batch.index(rows).with_columns(response_text=texts, prompt_text=list(rollout.shown.values()))
        return [shown(some, row).shortened() for row in range(len(rows))]

    def _dump(self, reader: BatchReader, rollout: RemoteRollout, batch: DataProto, step: int) -> None:
        names = ["responses", *(name for name in ("prompt_text", TEXT_COLUMN) if name in rollout.rows)]
        read = padded(reader.materialize(rollout.rows, names))
        whole = batch.with_columns(**{name: read[name] for name in names})
        path = Path(self.config.rollout_dump_dir or "") / f"step-{step:06d}.jsonl"
        write_lines(path, records(whole, self._text))

    def _text(self, token: int) -> str:
        if token not in self._text_of:
            path = self.config.actor_train.model_args.model_name_or_path
            self._tokenizer = self._tokenizer or load_tokenizer(str(path))
            self._text_of[token] = self._tokenizer.decode(token)
        return self._text_of[token]


@dataclass(frozen=True)
class _Cutting:
    """Cuts a step into mini-batches: their rows are there already, and what belongs to them alone is put."""

    config: PPOConfig
    transport: Transport
    partition: str
    rows: RowRemoteBatch
    batch: DataProto

    def actor(self, step: int) -> Iterator[MiniBatch]:
        loss = policy_loss(self.config)
        return self._put(policy_batches(self.config, loss, self.batch, step), ("advantages", "scores", "is_weight"))

    def critic(self, step: int) -> Iterator[MiniBatch]:
        if self.config.critic is None or "values" not in self.batch:
            return iter(())
        return self._put(value_batches(self.config, self.config.critic, self.batch, step), ("returns",))

    def _put(self, cuts: Iterator[tuple[Rows, DataProto]], shared: Sequence[str]) -> Iterator[MiniBatch]:
        # Every epoch reads them, so they are put once.
        made = self.batch.select([name for name in shared if name in self.batch])
        there = self.rows.union(self._put_columns(made, self.rows))
        for rows, mini in cuts:
            # Where the mask of responses is no column, trainers make it from their lengths.
            names = dict.fromkeys([*sent(there.fields), *(name for name in mini.columns if name in there)])
            read = there.index(rows).select(list(names))
            own = [name for name in mini.columns if name not in there and name != "response_mask"]
            yield MiniBatch(read.union(self._put_columns(mini.select(own), read)), tokens_of(mini))

    def _put_columns(self, batch: DataProto, like: RowRemoteBatch) -> RowRemoteBatch:
        return put_batch(self.transport, DataProto(batch.batch), partition=self.partition, like=like)


def shaper_of(config: PPOConfig) -> Shaper | EpisodeShaper:
    """What applies the rules of a config to its steps."""
    if isinstance(config, AgenticConfig):
        return EpisodeShaper(config)
    assert isinstance(config, RLVRConfig), "no other runs have rewards"
    return Shaper(config)


def _batch(reader: BatchReader, rollout: RemoteRollout, config: PPOConfig) -> DataProto:
    """What the shaper reads of a step: neither prompts nor responses."""
    read_where_there = ("old_log_probs", "ref_log_probs", "values", "response_mask", "turns")
    names = [name for name in read_where_there if name in rollout.rows]
    # Compared with the trainers' own, or, where these are not computed before training, corrected for in the loss.
    if "old_log_probs" in names or not config.recomputes_old_log_probs:
        names.append("infer_log_probs")
    read, facts = padded(reader.materialize(rollout.rows, names)), rollout.facts
    tensors = {**facts.batch, **read.batch}
    if "response_mask" not in tensors:
        width = rollout.rows.meta_info[PADDINGS]["responses"].width
        tensors["response_mask"] = response_mask(facts["response_lengths"], width)
    return DataProto(tensors, {**facts.non_tensor_batch, **read.non_tensor_batch}, facts.meta_info)


class ShapingWorker(Worker):
    """A `RemoteShaper` in a process of its own, without a device."""

    def __init__(self, spec: WorkerSpec, config: PPOConfig) -> None:
        super().__init__(spec)
        self.shaper = RemoteShaper(config)

    def shape(self, rollout: RemoteRollout, state: Mapping[str, Any], step: int, store: RowStore) -> ShapedRemotely:
        """As `RemoteShaper.shape`."""
        return self.shaper.shape(rollout, state, step, store)
