from dataclasses import replace

import numpy as np
import pytest
import torch

from roll_core.algorithms.advantages import AdvantageConfig, compute_advantages
from roll_core.algorithms.estimators import gae
from roll_core.algorithms.rewards import RunningMoments

NAN = float("nan")
NAMES = ["grpo", "rloo", "dr_grpo", "raft_plus_plus", "reinforce", "reinforce_plus_plus", "gae"]
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.bool)
GROUPS = torch.tensor([0, 0, 1, 1])
REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0])


def test_grpo_gives_every_token_the_advantage_of_its_response() -> None:
    out = compute_advantages(AdvantageConfig("grpo"), REWARDS, MASK, GROUPS)
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    np.testing.assert_allclose(out.advantages.numpy(), [[a, a, a], [-a, -a, 0], [-a, 0, 0], [a, a, a]], atol=1e-6)
    np.testing.assert_allclose(out.rewards.numpy(), [a, -a, -a, a], atol=1e-6)


def test_reinforce_gives_every_token_the_reward() -> None:
    out = compute_advantages(AdvantageConfig("reinforce"), REWARDS, MASK, GROUPS)
    assert out.advantages.tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1]]


def test_reinforce_plus_plus_normalises_over_all_tokens_after_the_divergence() -> None:
    kl = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, NAN], [3.0, NAN, NAN], [0.0, 0.0, 1.0]])
    config = AdvantageConfig("reinforce_plus_plus")
    out = compute_advantages(config, REWARDS, MASK, GROUPS, token_kl=kl, kl_coefficient=0.1)
    returns = [[1 - 0.3, 1 - 0.2, 1.0], [-0.1, -0.1], [-0.3], [1 - 0.1, 1 - 0.1, 1 - 0.1]]
    flat = np.concatenate(returns)
    np.testing.assert_allclose(out.returns[MASK].numpy(), flat, atol=1e-6)
    np.testing.assert_allclose(out.advantages[MASK].numpy(), (flat - flat.mean()) / flat.std(ddof=1), atol=1e-5)
    np.testing.assert_allclose(out.raw_advantages[MASK].numpy(), flat, atol=1e-6)


def test_gae_uses_the_critic() -> None:
    values = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, NAN], [0.6, NAN, NAN], [0.7, 0.8, 0.9]])
    out = compute_advantages(AdvantageConfig("gae", gamma=0.9, lambd=0.8), REWARDS, MASK, GROUPS, values=values)
    placed = torch.tensor([[0, 0, 1.0], [0, 0, 0], [0, 0, 0], [0, 0, 1.0]])
    advantages, returns = gae(placed, MASK, values, 0.9, 0.8)
    assert torch.equal(out.advantages, advantages) and torch.equal(out.returns, returns)


def test_gae_without_a_critic_says_so() -> None:
    with pytest.raises(ValueError, match="'gae' needs a critic's values, and none were given"):
        compute_advantages(AdvantageConfig("gae"), REWARDS, MASK, GROUPS)


def test_a_response_without_tokens_leaks_into_nobody() -> None:
    mask, groups = torch.tensor([[1, 1], [1, 0], [0, 0]], dtype=torch.bool), torch.tensor([0, 0, 0])
    config = AdvantageConfig("grpo")
    out = compute_advantages(config, torch.tensor([1.0, 0.0, 10.0]), mask, groups)
    peers = compute_advantages(config, torch.tensor([1.0, 0.0]), mask[:2], groups[:2])
    assert torch.equal(out.advantages[:2], peers.advantages)
    assert out.advantages[2].tolist() == [0.0, 0.0] and out.token_rewards[2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_without_a_grade_has_no_advantage(name: str) -> None:
    rewards = torch.tensor([1.0, NAN, 0.0, 1.0])
    out = compute_advantages(
        AdvantageConfig(name, whiten_advantages=True),
        rewards,
        MASK,
        torch.zeros(4, dtype=torch.long),
        values=MASK * 0.5,
    )
    assert out.advantages.isfinite().all() and out.returns.isfinite().all()
    assert out.advantages[1].tolist() == [0.0, 0.0, 0.0]


def test_whitening_looks_only_at_tokens_that_are_trained_on() -> None:
    config = AdvantageConfig("reinforce", whiten_advantages=True)
    loss_mask = MASK & torch.tensor([True, True, False, False])[:, None]
    out = compute_advantages(config, torch.tensor([1.0, 0.0, 500.0, -500.0]), MASK, GROUPS, loss_mask=loss_mask)
    kept = np.array([1, 1, 1, 0, 0])
    np.testing.assert_allclose(out.advantages[loss_mask].numpy(), (kept - kept.mean()) / kept.std(ddof=1), atol=1e-5)
    assert (out.advantages[~loss_mask] == 0).all()


def test_only_tokens_that_are_trained_on_have_an_advantage() -> None:
    loss_mask = MASK & torch.tensor([True, False, True, True])[:, None]
    rewards, kl = torch.tensor([1.0, 1.0, NAN, 1.0]), torch.ones(4, 3)
    config = AdvantageConfig("reinforce")
    out = compute_advantages(config, rewards, MASK, GROUPS, loss_mask=loss_mask, token_kl=kl, kl_coefficient=0.5)
    assert out.advantages.tolist() == [[-0.5, 0.0, 0.5], [0.0] * 3, [0.0] * 3, [-0.5, 0.0, 0.5]]
    assert torch.equal(out.raw_advantages, out.advantages)


def test_rewards_and_advantages_are_clipped_and_counted() -> None:
    config = AdvantageConfig("reinforce", reward_clip=2.0, advantage_clip=1.0)
    out = compute_advantages(config, torch.tensor([5.0, -3.0, 0.5, 0.0]), MASK, GROUPS)
    assert out.rewards.tolist() == [2.0, -2.0, 0.5, 0.0]
    assert out.advantages.tolist() == [[1, 1, 1], [-1, -1, 0], [0.5, 0, 0], [0, 0, 0]]
    assert out.metrics == {
        "critic/reward_clip_frac": 0.5,
        "critic/token_reward_clip_frac": 0.0,
        "critic/advantage_clip_frac": 5 / 9,
    }


def test_whitened_rewards_are_those_of_the_tokens() -> None:
    out = compute_advantages(AdvantageConfig("reinforce", whiten_rewards=True), REWARDS, MASK, GROUPS)
    flat = np.array([0, 0, 1, 0, 0, 0, 0, 0, 1.0])
    np.testing.assert_allclose(out.token_rewards[MASK].numpy(), (flat - flat.mean()) / flat.std(ddof=1), atol=1e-5)


def test_norm_types_are_those_of_the_config() -> None:
    config = AdvantageConfig("reinforce", norm_mean_type="group", norm_std_type="batch")
    out = compute_advantages(config, torch.tensor([1.0, 0.0, 4.0, 6.0]), MASK, GROUPS)
    std = np.std([1, 0, 4, 6], ddof=1) + 1e-6
    np.testing.assert_allclose(out.rewards.numpy(), np.array([0.5, -0.5, -1, 1]) / std, atol=1e-6)
    running = RunningMoments(count=2, mean=3.0, squares=8.0)
    config = replace(config, norm_mean_type="running", norm_std_type="running")
    out = compute_advantages(config, torch.tensor([1.0, 3.0, 4.0, 6.0]), MASK, GROUPS, running=running)
    np.testing.assert_allclose(out.rewards.numpy(), np.array([-2, 0, 1, 3]) / np.sqrt(8), atol=1e-5)


@pytest.mark.parametrize("garbage", [float("inf"), NAN, 1e9])
@pytest.mark.parametrize("name", NAMES)
def test_padding_full_of_garbage_changes_nothing(name: str, garbage: float) -> None:
    config = AdvantageConfig(
        name, whiten_rewards=True, whiten_advantages=True, gamma=0.9, reward_clip=1, advantage_clip=1
    )
    columns = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))

    def run(width: int) -> torch.Tensor:
        mask = torch.nn.functional.pad(MASK, (0, width))
        kl, values = torch.where(mask, torch.nn.functional.pad(columns, (0, width)), garbage)
        out = compute_advantages(config, REWARDS, mask, GROUPS, values=values, token_kl=kl, kl_coefficient=0.1)
        assert (out.advantages[~mask] == 0).all()
        return out.advantages[:, :3]

    assert torch.equal(run(0), run(10))


def test_an_empty_mask_gives_zeros() -> None:
    nothing = torch.zeros_like(MASK)
    for name in ("grpo", "reinforce", "reinforce_plus_plus"):
        assert (compute_advantages(AdvantageConfig(name), REWARDS, nothing, GROUPS).advantages == 0).all()


def test_an_unknown_estimator_lists_the_known_ones() -> None:
    with pytest.raises(ValueError) as caught:
        AdvantageConfig("ppo")
    assert str(caught.value) == (
        "no adv_estimator named 'ppo'\n  there are: gae, reinforce, reinforce_plus_plus, grpo, rloo, dr_grpo, "
        "raft_plus_plus, gigpo, step_reinforce, agentic_reinforce"
    )


def test_norm_types_that_grpo_would_ignore_are_refused() -> None:
    with pytest.raises(
        ValueError, match="'grpo' normalises within groups; norm_mean_type or norm_std_type says 'batch'"
    ):
        AdvantageConfig("grpo", norm_mean_type="group", norm_std_type="batch")
