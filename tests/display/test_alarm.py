from roll_core.display import ConstantRewardAlarm


def test_one_reward_value_for_several_steps_raises_the_alarm_once() -> None:
    alarm = ConstantRewardAlarm(patience=3)
    notices = [alarm.observe(0.0, 0.0, 0.0) for _ in range(10)]
    assert [notice is not None for notice in notices] == [False, False, True] + [False] * 7
    assert notices[2] == (
        "every reward was 0 in each of the last 3 steps, so there is nothing to learn from: look at the samples, "
        "try the reward with `roll score`, or use harder or easier prompts"
    )


def test_no_advantage_for_several_steps_raises_the_alarm_once() -> None:
    alarm = ConstantRewardAlarm(patience=3)
    notices = [alarm.observe(0.0, 1.0, 0.0) for _ in range(5)]
    assert [notice is not None for notice in notices] == [False, False, True, False, False]
    assert str(notices[2]).startswith("every advantage was 0 in each of the last 3 steps")


def test_a_step_that_differs_starts_the_count_anew() -> None:
    alarm = ConstantRewardAlarm(patience=3)
    for _ in range(4):
        assert alarm.observe(0.0, 0.0, 0.0) is None
        assert alarm.observe(0.0, 0.0, 0.0) is None
        assert alarm.observe(0.0, 1.0, 0.5) is None


def test_a_reward_that_changes_between_steps_is_not_constant() -> None:
    alarm = ConstantRewardAlarm(patience=2)
    assert [alarm.observe(value, value, 0.5) for value in (0.0, 1.0, 0.0, 1.0)] == [None] * 4


def test_a_second_streak_raises_the_alarm_again() -> None:
    alarm = ConstantRewardAlarm(patience=2)
    steps = [(0.0, 0.0, 0.0)] * 2 + [(0.0, 1.0, 1.0)] + [(1.0, 1.0, 0.0)] * 2
    notices = [alarm.observe(*step) for step in steps]
    assert [notice is not None for notice in notices] == [False, True, False, False, True]
    assert str(notices[4]).startswith("every reward was 1 ")
