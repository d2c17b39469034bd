"""The same job on two trainers and two engines, sharing devices or not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.runs import Run

MakeRun = Callable[..., Run]

TWO_TRAINERS = ("actor_train.device_mapping=[0,1]", "actor_train.training_args.gradient_accumulation_steps=2")
COLOCATED = (*TWO_TRAINERS, "actor_infer.device_mapping=[0,1]")
SEPARATE = (*TWO_TRAINERS, "actor_infer.device_mapping=[2,3]")
SHORT = ("max_steps=2", "save_steps=0")


@pytest.fixture(scope="module")
def single(make_run: MakeRun) -> Run:
    run = make_run("single", *SHORT)
    code, output = run.finish()
    assert code == 0, output
    return run


@pytest.mark.parametrize("layout", [COLOCATED, SEPARATE], ids=["colocated", "separate"])
def test_two_trainers_and_two_engines_do_what_one_of_each_does(
    single: Run, make_run: MakeRun, layout: tuple[str, ...]
) -> None:
    run = make_run("layout", *SHORT, *layout)
    code, output = run.finish()
    assert code == 0, output
    assert run.rollouts()["step-000001.jsonl"] == single.rollouts()["step-000001.jsonl"]
    ours, theirs = run.metrics(), single.metrics()
    for step in (1, 2):
        for name in ("train/loss", "train/grad_norm", "reward/mean", "actor/pg_loss"):
            assert ours[step][name] == pytest.approx(theirs[step][name], rel=1e-4, abs=1e-6), (step, name)


def test_a_critic_and_a_reference_take_part_and_are_gone_on_with(make_run: MakeRun, assets: Path) -> None:
    ppo = (
        "adv_estimator=gae",
        "norm_mean_type=null",
        "norm_std_type=null",
        "add_token_level_kl=true",
        "value_clip=0.5",
        f"reward_pretrain={assets / 'model'}",
        "critic={model_args: {dtype: fp32}, device_mapping: [0], training_args: {learning_rate: 1.0e-3, "
        "lr_scheduler_type: constant, per_device_train_batch_size: 8}}",
    )
    straight, stopped = make_run("ppo", "max_steps=3", *ppo), make_run("ppo_stopped", *ppo)
    code, output = straight.finish()
    assert code == 0, output
    metrics = straight.metrics()[2]
    assert metrics["critic/loss"] > 0 and "critic/kl" in metrics and metrics["critic/grad_norm"] > 0
    assert (straight.folder / "checkpoints" / "checkpoint-2" / "critic" / "dcp").is_dir()
    code, output = stopped.finish("max_steps=2")
    assert code == 0, output
    code, output = stopped.finish("max_steps=3", "resume_from_checkpoint=true")
    assert code == 0, output
    assert stopped.metrics()[3] == straight.metrics()[3]


def test_a_step_in_which_all_answers_are_right_is_an_ordinary_step(make_run: MakeRun) -> None:
    reward = Path(__file__).parent / "constant_reward.py"
    run = make_run("constant", *SHORT, *TWO_TRAINERS, f"rewards.math_rule.worker_cls={reward}:score")
    code, output = run.finish()
    assert code == 0, output
    for step in (1, 2):
        metrics = run.metrics()[step]
        assert metrics["train/loss"] == metrics["train/grad_norm"] == 0
        assert "train/lr" in metrics and metrics["group/zero_std_ratio"] == 1
