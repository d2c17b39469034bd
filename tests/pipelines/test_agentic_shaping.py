"""What episodes are worth to training: compared by episode or by turn, whatever rows they stand in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from roll_core.config.schema import AgenticConfig
from roll_core.data import DataProto
from roll_core.pipelines.agentic_shaping import EpisodeShaper, turns_of
from roll_core.rollout.env_batch import to_batch
from roll_core.rollout.env_episode import Episode, Plan, Row, Style, Turn
from tests.rollout.dialogues import byte_dialogue

DIALOGUE = byte_dialogue()


def episode(group: int, member: int, rewards: list[float], *, by_steps: bool = False, states: str = "") -> Episode:
    """Turns of two sampled tokens, with one token of the environment between them."""
    one = Episode(Plan(group, member, "Lake", group, 0, 0), Style("Lake", is_stepwise=by_steps), DIALOGUE)
    row = Row((1, 2, 3))
    for step, reward in enumerate(rewards):
        if step and by_steps:
            row = Row((1, 2, 3))
        elif step:
            row.read([9])
        start = len(row.response_ids)
        row.response_ids += [5, 6]
        row.mask += [True, True]
        row.log_probs += [-1.0, -1.0]
        turn = Turn("seen", states[step : step + 1] or "s", step, start, start + 2, reward=reward)
        row.turns.append(turn)
        one.turns.append(turn)
        if row not in one.rows:
            one.rows.append(row)
    return one


def shaped(episodes: list[Episode], **keys: Any) -> DataProto:
    config = AgenticConfig.model_validate(keys)
    return EpisodeShaper(config)(to_batch(episodes, DIALOGUE, 0, 50))[0]


def by_turn(batch: DataProto) -> list[list[float]]:
    """Each episode's advantages, turn by turn; all tokens of a turn must have the same."""
    turns, found = turns_of(batch), {}
    for row, start, end, episode in zip(
        *(getattr(turns, name).tolist() for name in ("row", "start", "end", "trajectory"))
    ):
        values = batch["advantages"][row, start:end]
        assert (values == values[0]).all()
        found.setdefault(episode, []).append(round(float(values[0]), 4))
    return [found[episode] for episode in sorted(found)]


GROUPS = {"grouping": "traj_group_id", "method": "mean"}


@pytest.mark.parametrize("by_steps", [False, True])
def test_grpo_gives_an_episodes_worth_to_all_its_turns_and_counts_it_once(by_steps: bool) -> None:
    episodes = [episode(0, 0, [0.0, 0.0, 1.0], by_steps=by_steps), episode(0, 1, [0.0], by_steps=by_steps)]
    batch = shaped(episodes, adv_estimator="grpo", reward_normalization=GROUPS)
    assert by_turn(batch) == [[0.5, 0.5, 0.5], [-0.5]]


def test_what_was_not_sampled_has_no_advantage() -> None:
    batch = shaped([episode(0, 0, [0.0, 1.0]), episode(0, 1, [0.0])], adv_estimator="grpo")
    assert batch["advantages"][0].tolist()[2] == 0.0
    assert (batch["advantages"][~batch["response_mask"]] == 0).all()
    assert batch["final_response_mask"].equal(batch["response_mask"])


def test_without_a_section_grpo_compares_within_groups_by_mean_and_deviation() -> None:
    episodes = [episode(0, 0, [1.0]), episode(0, 1, [0.0]), episode(1, 0, [1.0]), episode(1, 1, [1.0])]
    assert by_turn(shaped(episodes, adv_estimator="grpo")) == [[0.7071], [-0.7071], [0.0], [0.0]]


@pytest.mark.parametrize("by_steps", [False, True])
def test_agentic_reinforce_discounts_by_turns(by_steps: bool) -> None:
    one = episode(0, 0, [0.0, 0.0, 1.0], by_steps=by_steps)
    batch = shaped([one], adv_estimator="agentic_reinforce", gamma=0.5)
    assert by_turn(batch) == [[0.25, 0.5, 1.0]]


@pytest.mark.parametrize("by_steps", [False, True])
def test_step_reinforce_values_each_turn_by_what_came_after_it(by_steps: bool) -> None:
    one = episode(0, 0, [1.0, 0.0, 2.0], by_steps=by_steps)
    norm = {"grouping": "batch", "method": "identity"}
    batch = shaped([one], adv_estimator="step_reinforce", step_reward_gamma=0.5, reward_normalization=norm)
    assert by_turn(batch) == [[1.5, 1.0, 2.0]]


@pytest.mark.parametrize("by_steps", [False, True])
def test_gigpo_adds_how_a_step_did_among_those_from_the_same_state(by_steps: bool) -> None:
    episodes = [
        episode(0, 0, [0.0, 1.0], by_steps=by_steps, states="ab"),
        episode(0, 1, [0.0, 0.0], by_steps=by_steps, states="ac"),
    ]
    keys = {"step_reward_gamma": 1.0, "step_reward_weight": 10.0, "reward_normalization": GROUPS}
    batch = shaped(episodes, adv_estimator="gigpo", **keys)
    # Of episodes +-0.5; of steps from state a +-0.5 as well, and nobody else was in b or c.
    assert by_turn(batch) == [[5.5, 0.5], [-5.5, -0.5]]


def test_rows_by_steps_and_by_trajectories_are_worth_the_same() -> None:
    rewards = [[0.0, 1.0, 0.5], [0.0], [1.0, 1.0]]
    for estimator in ("grpo", "gigpo", "step_reinforce", "agentic_reinforce"):
        one, other = (
            by_turn(
                shaped(
                    [episode(0, member, list(each), by_steps=by_steps) for member, each in enumerate(rewards)],
                    adv_estimator=estimator,
                    reward_normalization={"grouping": "traj_group_id", "method": "mean_std"},
                    gamma=0.9 if estimator == "agentic_reinforce" else 1.0,
                )
            )
            for by_steps in (False, True)
        )
        assert one == other


def test_advantages_are_whitened_and_clipped_over_sampled_tokens() -> None:
    episodes = [episode(0, 0, [1.0, 0.0]), episode(0, 1, [0.0]), episode(0, 2, [5.0])]
    for estimator in ("grpo", "gigpo"):
        batch = shaped(episodes, adv_estimator=estimator, whiten_advantages=True)
        assert abs(float(batch["advantages"][batch["response_mask"]].mean())) < 1e-6
        clipped = shaped(episodes, adv_estimator=estimator, advantage_clip=0.2)
        assert float(clipped["advantages"].abs().max()) == pytest.approx(0.2)


def test_grouping_by_tags_and_batch() -> None:
    episodes = [episode(0, 0, [1.0]), episode(1, 0, [0.0])]
    for grouping in ("batch", "tags"):
        norm = {"grouping": grouping, "method": "mean"}
        assert by_turn(shaped(episodes, adv_estimator="reinforce", reward_normalization=norm)) == [[0.5], [-0.5]]
    alone = {"grouping": "traj_group_id", "method": "mean"}
    assert by_turn(shaped(episodes, adv_estimator="reinforce", reward_normalization=alone)) == [[0.0], [0.0]]


def test_the_shaper_goes_on_from_a_checkpoint() -> None:
    shaper = EpisodeShaper(AgenticConfig.model_validate({"adv_estimator": "grpo"}))
    shaper.load_state_dict(shaper.state_dict())
    assert torch.isfinite(torch.tensor(shaper.kl.coefficient))
