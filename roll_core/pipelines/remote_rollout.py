"""A step's rows by reference: on the driver are their small columns, in the transport all that is large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roll_core.config.schema import PPOConfig
from roll_core.data import DataProto
from roll_core.data.answers import rows_of
from roll_core.data.padding import PADDINGS
from roll_core.data.remote_batch import RowRemoteBatch
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.step_report import shown_rows
from roll_core.rollout.sample import Sample, paddings_of, to_facts


@dataclass(frozen=True)
class RemoteRollout:
    """`rows` refers to tokens, log-probabilities, texts and whatever roles made of them; `facts` are the rest.

    `shown` are the prompts of rows that the terminal shows, by row.
    """

    rows: RowRemoteBatch
    facts: DataProto
    shown: Mapping[int, str]

    def with_meta_info(self, **facts: Any) -> RemoteRollout:
        """The same rows with further facts about the whole."""
        rows = replace(self.rows, meta_info={**self.rows.meta_info, **facts})
        return replace(self, rows=rows, facts=self.facts.with_meta_info(**facts))

    def __len__(self) -> int:
        return len(self.rows)


def remote_rollout(
    config: PPOConfig, samples: Sequence[Sample], delivery: Delivery, pad_token_id: int, step: int
) -> RemoteRollout:
    """Samples whose completions are in a transport, as the rows of a step; read, they are those of `to_batch`.

    Prompts are the driver's own: their texts are among the facts where a file is written of them.
    """
    facts = to_facts(samples, config.response_window)
    rows = rows_of([sample.completion for sample in samples])
    rows = delivery.put(facts.select(["prompt_lengths", "response_lengths"]), like=rows)
    meta = {**facts.meta_info, PADDINGS: paddings_of(facts, pad_token_id)}
    prompts = [sample.prompt.row.prompt for sample in samples]
    if config.rollout_dump_dir:
        facts = facts.with_columns(prompt_text=prompts)
    shown = {row: prompts[row] for row in shown_rows(config, len(samples), step)}
    return RemoteRollout(replace(rows, meta_info=meta), facts, shown)
