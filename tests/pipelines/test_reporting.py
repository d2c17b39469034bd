import json
from pathlib import Path

import pytest
import torch

from roll_core.data import DataProto
from roll_core.errors import RollError
from roll_core.pipelines.step_report import records, write_lines
from roll_core.show.records import Token, read_rollout


def test_samples_that_cannot_be_written_end_the_run_with_the_key_and_the_cause(tmp_path: Path) -> None:
    (tmp_path / "dump").write_text("a file where the folder should be")
    with pytest.raises(
        RollError, match=r"^rollout_dump_dir: .*step-1\.jsonl could not be written: (Not a dir|File ex)"
    ):
        write_lines(tmp_path / "dump" / "step-1.jsonl", [{"id": "1"}])


def test_a_step_is_dumped_with_its_tokens_and_the_advantages_of_those_it_trains_on() -> None:
    texts = ["id", "tag", "domain", "prompt_text", "response_text", "status", "reason"]
    batch = DataProto(
        {
            "responses": torch.tensor([[5, 6, 7, 0], [8, 0, 0, 0]]),
            "response_lengths": torch.tensor([3, 1]),
            "advantages": torch.tensor([[0.5, -1 / 3, 2.0, 9.0], [-1.0, 9.0, 9.0, 9.0]]),
            "final_response_mask": torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1]]).bool(),
            "scores": torch.tensor([1.0, 0.0]),
            "group": torch.tensor([0, 0]),
        },
        {name: [f"{name} 0", f"{name} 1"] for name in texts},
    )
    rollouts = [read_rollout(json.dumps(one), "train", 1) for one in records(batch, lambda token: f"<{token}>")]
    assert rollouts[0].tokens == (Token("<5>", 0.5), Token("<6>", -0.333333), Token("<7>", None))
    assert rollouts[1].tokens == (Token("<8>", -1.0),)
