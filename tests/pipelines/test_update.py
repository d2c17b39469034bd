from typing import Any

import pytest
import torch

from roll_core.config.schema import RLVRConfig, TrainInferCorrection
from roll_core.data import DataProto
from roll_core.pipelines.sampling import sampling_params, training_temperature
from roll_core.pipelines.shaping import Shaper
from roll_core.pipelines.update import average
from roll_core.pipelines.weighting import policy_loss, rows_to_send

BASE: dict[str, Any] = {
    "response_length": 4,
    "adv_estimator": "grpo",
    "num_return_sequences_in_group": 2,
    "rewards": {"math_rule": {}},
}


def config(**changes: Any) -> RLVRConfig:
    return RLVRConfig.model_validate(BASE | changes)


def batch() -> DataProto:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]], dtype=torch.bool)
    return DataProto(
        {
            "response_mask": mask,
            "response_lengths": mask.sum(-1),
            "is_graded": torch.tensor([True, True, True, True]),
            "scores": torch.tensor([1.0, 0.0, 1.0, 1.0]),
            "rewards": torch.tensor([1.0, 0.0, 1.0, 1.0]),
            "group": torch.tensor([0, 0, 1, 1]),
            "infer_log_probs": torch.zeros(4, 3),
            "difficulty": torch.full((4,), torch.nan),
        },
        meta_info={"max_response_length": 3},
    )


def test_groups_with_equal_rewards_get_no_advantage_and_others_sum_to_zero() -> None:
    shaped, _ = Shaper(config())(batch())
    per_row = (shaped["advantages"] * shaped["response_mask"]).sum(-1) / shaped["response_mask"].sum(-1)
    assert per_row[2:].tolist() == [0, 0]
    assert per_row[0] == -per_row[1] > 0


def test_row_masks_leave_rows_out_of_training() -> None:
    shaped, metrics = Shaper(config(max_len_mask=True))(batch())
    assert shaped["final_response_mask"].any(-1).tolist() == [True, True, False, True]
    assert metrics["actor/max_len_mask_ratio"] == 0.75


def test_a_sample_without_a_grade_is_not_trained_on() -> None:
    given = batch().with_columns(is_graded=torch.tensor([False, True, True, True]))
    shaped, metrics = Shaper(config())(given)
    assert not shaped["final_response_mask"][0].any()
    assert metrics["actor/graded_mask_ratio"] == 0.75


def test_kl_in_the_reward_lowers_it_and_is_measured() -> None:
    given = batch().with_columns(old_log_probs=torch.full((4, 3), -1.0), ref_log_probs=torch.full((4, 3), -1.5))
    settings = config(adv_estimator="reinforce", add_token_level_kl=True, init_kl_coef=0.1)
    shaper = Shaper(settings)
    shaped, metrics = shaper(given)
    assert metrics["critic/kl"] == pytest.approx(0.5)
    assert shaped["token_level_rewards"][0].tolist() == pytest.approx([-0.05, 0.95, 0.0])


def test_a_shaper_goes_on_from_its_state() -> None:
    settings = config(adv_estimator="reinforce", norm_mean_type="running", norm_std_type="running")
    straight, first = Shaper(settings), Shaper(settings)
    straight(batch())
    first(batch())
    second = Shaper(settings)
    second.load_state_dict(first.state_dict())
    assert torch.equal(straight(batch())[0]["advantages"], second(batch())[0]["advantages"])


def test_the_loss_is_what_the_config_says() -> None:
    given = config(
        use_pg_clip_range=True,
        pg_clip_low=0.1,
        pg_clip_high=0.3,
        dual_clip_loss=True,
        use_kl_loss=True,
        kl_loss_coef=0.5,
        entropy_loss_coef=0.01,
        importance_sampling="seq",
        actor_train={"pg_variant": "cispo", "cispo_epsilon_low": 0.4},
    )
    loss = policy_loss(given)
    assert (loss.variant, loss.importance_sampling) == ("cispo", "seq")
    assert (loss.kl_loss_coef, loss.entropy_loss_coef) == (0.5, 0.01)
    assert (loss.options.ratio_low, loss.options.ratio_high) == (0.9, 1.3)
    assert loss.options.dual_clip_loss and loss.options.cispo_epsilon_low == 0.4


def test_a_kl_coefficient_without_use_kl_loss_does_nothing() -> None:
    assert policy_loss(config(kl_loss_coef=0.5)).kl_loss_coef == 0


def test_a_correction_is_made_once_either_before_training_or_in_the_loss() -> None:
    wanted = {"is_weight": {"enabled": True, "upper_bound": 2.0}}
    in_loss = config(train_infer_correction=wanted, enable_old_logprobs_recompute=False)
    assert policy_loss(in_loss).correction is not None
    before = config(train_infer_correction=wanted, enable_old_logprobs_recompute=True)
    assert policy_loss(before).correction is None
    given = batch().with_columns(old_log_probs=torch.full((4, 3), 0.5))
    assert Shaper(before)(given)[0]["is_weight"].max() == pytest.approx(1.6487, abs=1e-3)
    assert isinstance(before.train_infer_correction, TrainInferCorrection)


def test_rows_of_an_optimiser_step_are_counted_over_ranks() -> None:
    training = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    given = config(actor_train={"training_args": training, "device_mapping": [0, 1, 2, 3]})
    assert given.actor_train.mini_batch_size == 24


def test_metrics_of_several_steps_are_averaged_and_extremes_kept() -> None:
    assert average([{"a": 1, "r_max": 2, "r_min": 1}, {"a": 3, "r_max": 5, "r_min": 0}]) == {
        "a": 2,
        "r_max": 5,
        "r_min": 0,
    }


def test_greedy_sampling_is_temperature_zero_and_scored_as_it_is() -> None:
    arguments = config(
        actor_infer={"generating_args": {"do_sample": False, "temperature": 0.7}}
    ).actor_infer.generating_args
    assert arguments is not None
    assert sampling_params(arguments, [2]).temperature == 0 and sampling_params(arguments, [2]).stop_token_ids == (2,)
    assert training_temperature(arguments) == 1.0


def test_rows_without_a_gradient_are_not_sent_and_a_step_is_taken_even_so() -> None:
    loss, weight = policy_loss(config()), torch.ones(3, 2)
    some = DataProto({"advantages": torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), "loss_weight": weight})
    assert rows_to_send(loss, some).tolist() == [1]
    none = DataProto({"advantages": torch.zeros(3, 2), "loss_weight": weight})
    assert rows_to_send(loss, none).tolist() == [0]
    with_entropy = policy_loss(config(entropy_loss_coef=0.1))
    assert rows_to_send(with_entropy, none).tolist() == [0, 1, 2]
