"""What a config asks of rewards, divergences and mismatches, through the same objects that a run uses."""

from typing import Any

import numpy as np
import pytest
import torch

from roll_core.algorithms.aggregation import token_weights
from roll_core.config.schema import RLVRConfig
from roll_core.data import DataProto
from roll_core.pipelines.shaping import Shaper
from roll_core.pipelines.weighting import policy_loss
from roll_core.training import MicroBatch

ON = {"enabled": True, "ratio_enabled": True}
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
OLD = torch.where(MASK, -torch.rand(4, 4, generator=torch.Generator().manual_seed(0)) - 0.5, torch.nan)
REFERENCE = torch.where(MASK, OLD + 0.3 * torch.randn(4, 4, generator=torch.Generator().manual_seed(1)), torch.nan)


def config(**changes: Any) -> RLVRConfig:
    base = {
        "response_length": 4,
        "adv_estimator": "reinforce",
        "num_return_sequences_in_group": 2,
        "rewards": {"math_rule": {}},
    }
    return RLVRConfig.model_validate(base | changes)


def batch(**changes: torch.Tensor) -> DataProto:
    scores = torch.tensor([1.0, 0.0, 1.0, 0.5])
    columns = {
        "response_mask": MASK,
        "response_lengths": MASK.sum(-1),
        "is_graded": torch.ones(4, dtype=torch.bool),
        "scores": scores,
        "rewards": scores,
        "group": torch.tensor([0, 0, 1, 1]),
        "infer_log_probs": OLD,
        "old_log_probs": OLD,
        "ref_log_probs": REFERENCE,
        "difficulty": torch.full((4,), torch.nan),
    }
    return DataProto(columns | changes, meta_info={"max_response_length": 4})


def planted() -> torch.Tensor:
    """The engine's log-probs where it was wrong about one token of row 0 by a factor of 2, and about row 3 by 1.1."""
    infer = OLD.clone()
    infer[0, 2] += np.log(2)
    infer[3] -= np.log(1.1)
    return infer


def corrected(**correction: Any) -> tuple[DataProto, dict[str, float]]:
    return Shaper(config(train_infer_correction=correction))(batch(infer_log_probs=planted()))


def test_a_planted_mismatch_is_measured_whatever_is_done_about_it() -> None:
    shaped, metrics = Shaper(config())(batch(infer_log_probs=planted()))
    assert torch.equal(shaped["final_response_mask"], MASK) and "is_weight" not in shaped
    ratios = [1.0] * 8 + [0.5] + [1.1] * 4
    assert metrics["actor/train_infer_ratio_token_mean"] == pytest.approx(np.mean(ratios), rel=1e-5)
    p = OLD.exp()
    differences = [0.0] * 8 + [float(p[0, 2] * (1 - 2)), *(p[3] * (1 - 1 / 1.1)).tolist()]
    assert metrics["actor/train_infer_diff_token_mean"] == pytest.approx(np.mean(differences), abs=1e-6)
    _, exact = Shaper(config())(batch())
    assert exact["actor/train_infer_ratio_token_mean"] == 1.0 and exact["actor/train_infer_diff_token_mean"] == 0.0


def test_weights_make_up_for_the_mismatch_token_by_token_or_as_a_whole() -> None:
    shaped, metrics = corrected(is_weight={"enabled": True, "weight_type": "token", "upper_bound": None})
    expected = torch.where(MASK, 1.0, 0)
    expected[0, 2], expected[3] = 0.5, 1.1
    torch.testing.assert_close(shaped["is_weight"], expected)
    shaped, metrics = corrected(is_weight={"enabled": True, "weight_type": "sequence", "upper_bound": 1.2})
    expected = torch.where(MASK, torch.tensor([0.5, 1.0, 1.0, 1.2])[:, None], 0)
    torch.testing.assert_close(shaped["is_weight"], expected)
    assert metrics["actor/is_weight_clipfrac"] == pytest.approx(4 / 13)


def test_filters_leave_out_what_was_planted_and_nothing_else() -> None:
    shaped, _ = corrected(filters=[{**ON, "agg_type": "token"}])
    expected = MASK.clone()
    expected[0, 2] = False
    assert torch.equal(shaped["final_response_mask"], expected)
    shaped, _ = corrected(filters=[{**ON, "agg_type": "geometric", "ratio_low": 0.9, "ratio_high": 1.05}])
    assert shaped["final_response_mask"].any(-1).tolist() == [False, True, True, False]
    off = {"enabled": False, "ratio_enabled": True, "ratio_low": 1.0, "ratio_high": 1.0}
    shaped, _ = corrected(filters=[off])
    assert torch.equal(shaped["final_response_mask"], MASK)


def test_what_a_filter_leaves_out_has_no_advantage_and_no_gradient() -> None:
    shaped, _ = corrected(filters=[{**ON, "agg_type": "token"}])
    assert shaped["advantages"][0].tolist() == [1.0, 1.0, 0.0, 1.0]
    log_probs = torch.where(MASK, OLD, 0).requires_grad_()
    loss, _ = policy_loss(config(enable_old_logprobs_recompute=True))(micro(shaped, log_probs))
    loss.backward()
    assert log_probs.grad is not None
    assert (log_probs.grad[0] != 0).tolist() == [True, True, False, True]


def micro(shaped: DataProto, log_probs: torch.Tensor) -> MicroBatch:
    names = ("advantages", "old_log_probs", "ref_log_probs", "is_weight")
    columns = {name: shaped[name] for name in names if name in shaped}
    columns["loss_weight"] = token_weights(shaped["final_response_mask"], "token-mean", shaped["sample_weight"])
    return MicroBatch(shaped["response_mask"], columns, log_probs)


def test_a_weighted_gradient_from_the_engines_samples_is_the_trainers_own() -> None:
    """Over all answers of one token that there are, each as often as the engine samples it."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(6, generator=generator, requires_grad=True)
    engine = (logits.detach() + 0.8 * torch.randn(6, generator=generator)).log_softmax(-1)
    rewards, mask = torch.randn(6, generator=generator), torch.ones(6, 1, dtype=torch.bool)
    trainer = logits.log_softmax(-1)
    given = DataProto(
        {
            "response_mask": mask,
            "response_lengths": mask.sum(-1),
            "is_graded": mask[:, 0],
            "scores": rewards,
            "rewards": rewards,
            "group": torch.zeros(6, dtype=torch.long),
            "infer_log_probs": engine[:, None],
            "old_log_probs": trainer.detach()[:, None],
        },
        meta_info={"max_response_length": 1},
    )

    def gradient(**correction: Any) -> torch.Tensor:
        settings = config(
            train_infer_correction=correction, enable_old_logprobs_recompute=True, actor_train={"pg_variant": "vanilla"}
        )
        shaped, _ = Shaper(settings)(given)
        columns = {name: shaped[name] for name in ("advantages", "old_log_probs", "is_weight") if name in shaped}
        columns["loss_weight"] = engine.exp()[:, None]
        [found] = torch.autograd.grad(
            policy_loss(settings)(MicroBatch(mask, columns, logits.log_softmax(-1)[:, None]))[0], logits
        )
        return found

    [expected] = torch.autograd.grad(-(trainer.exp() * rewards).sum(), logits)
    torch.testing.assert_close(gradient(is_weight={"enabled": True, "upper_bound": None}), expected)
    assert (gradient() - expected).abs().max() > 0.02


def test_a_divergence_in_the_reward_takes_off_what_is_still_to_come() -> None:
    off, _ = Shaper(config())(batch())
    on, metrics = Shaper(config(add_token_level_kl=True, init_kl_coef=0.3, kl_penalty="kl"))(batch())
    kl = torch.where(MASK, OLD - REFERENCE, 0)
    to_come = torch.where(MASK, kl.flip(-1).cumsum(-1).flip(-1), 0)
    torch.testing.assert_close(off["advantages"] - on["advantages"], 0.3 * to_come)
    assert metrics["critic/kl"] == pytest.approx(float((kl.sum(-1) / MASK.sum(-1)).mean()), rel=1e-5)
    assert metrics["critic/kl_coef"] == 0.3


def test_a_divergence_in_the_loss_adds_k3_and_its_gradient() -> None:
    shaped, _ = Shaper(config())(batch())
    log_probs = torch.where(MASK, OLD, 0)

    def value_and_gradient(**changes: Any) -> tuple[float, torch.Tensor]:
        leaf = log_probs.clone().requires_grad_()
        loss, _ = policy_loss(config(enable_old_logprobs_recompute=True, **changes))(micro(shaped, leaf))
        loss.backward()
        assert leaf.grad is not None
        return loss.item(), leaf.grad

    value_off, gradient_off = value_and_gradient()
    value_on, gradient_on = value_and_gradient(use_kl_loss=True, kl_loss_coef=0.7)
    d = torch.where(MASK, REFERENCE - OLD, 0).double()
    assert value_on - value_off == pytest.approx(0.7 * float((d.exp() - d - 1).sum() / 13), rel=1e-4)
    torch.testing.assert_close(gradient_on - gradient_off, (0.7 * (1 - d.exp()) / 13).float(), atol=1e-6, rtol=1e-4)


def test_rewards_fall_near_the_longest_response() -> None:
    shaped, metrics = Shaper(config(overlong_buffer_length=2, overlong_penalty_factor=0.5))(batch())
    assert shaped["response_level_rewards"].tolist() == [1.0 - 0.5, 0.0, 1.0 - 0.25, 0.5 - 0.5]
    assert metrics["reward/overlong_ratio"] == 0.75
    assert shaped["scores"].tolist() == [1.0, 0.0, 1.0, 0.5]
