import math

import torch

from roll_core.inference import SamplingParams
from roll_core.rewards import Status
from roll_core.rollout.sample import requests_for, to_batch
from roll_core.rollout.seeds import seed_of
from tests.rollout.samples import prompt, sample

PARAMS = SamplingParams(max_new_tokens=4)


def test_every_sample_has_a_seed_of_its_own() -> None:
    seeds = {
        seed_of(run, purpose, step, row, group, index)
        for run in (0, 1)
        for purpose in ("train", "val")
        for step in (1, 11)
        for row in ("1", "11")
        for group in (1, 11)
        for index in (1, 11)
    }
    assert len(seeds) == 64
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_seed_is_the_same_in_every_process() -> None:
    assert seed_of(42, "train", 3, "row-7", 2, 5) == 2093777745842966303


def test_requests_of_one_prompt_share_a_group_and_differ_in_seed() -> None:
    requests = requests_for([prompt("a"), prompt("b")], 10, 2, PARAMS, 0, "train/3")
    assert [request.request_id for request in requests] == [
        "train/3/10/0",
        "train/3/10/1",
        "train/3/11/0",
        "train/3/11/1",
    ]
    assert [request.group for request in requests] == ["train/3/10"] * 2 + ["train/3/11"] * 2
    assert len({request.seed for request in requests}) == 4


def test_a_batch_pads_prompts_left_and_responses_right() -> None:
    batch = to_batch([sample(prompt("aa"), 0, [1, 2], 1.0), sample(prompt("a"), 1, [3], 0.0, reason="length")], 9, 4)
    assert batch["prompts"].tolist() == [[5, 6, 7], [9, 5, 6]]
    assert batch["responses"].tolist() == [[1, 2], [3, 9]]
    assert batch["response_mask"].tolist() == [[True, True], [True, False]]
    assert batch["infer_log_probs"].tolist() == [[-0.5, -0.5], [-0.5, 0.0]]
    assert batch["is_clipped"].tolist() == [False, True]
    assert batch.meta_info["max_response_length"] == 4


def test_a_sample_that_could_not_be_graded_is_marked() -> None:
    batch = to_batch([sample(prompt("a"), 0, [1], 0.0, status=Status.TIMEOUT)], 9, 4)
    assert batch["is_graded"].tolist() == [False] and batch["status"].tolist() == ["timeout"]


def test_difficulty_is_a_number_wherever_the_row_has_one() -> None:
    rows = [prompt("a", difficulty=0.5), prompt("b", difficulty="0.25"), prompt("c", difficulty="hard"), prompt("d")]
    found = to_batch([sample(row, 0, [1], 0.0) for row in rows], 9, 4)["difficulty"].tolist()
    assert found[:2] == [0.5, 0.25] and math.isnan(found[2]) and math.isnan(found[3])


def test_an_empty_response_has_no_tokens_in_the_mask() -> None:
    batch = to_batch([sample(prompt("a"), 0, [], 0.0)], 9, 4)
    assert batch["response_mask"].sum() == 0 and batch["responses"].shape == torch.Size([1, 1])
