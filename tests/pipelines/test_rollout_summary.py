"""What a rollout says at its end."""

from roll_core.pipelines.rollout_summary import Counting, Verdict


def test_shares_come_with_counts_intervals_tags_and_troubles() -> None:
    counting = Counting("prompts")
    for group in range(10):
        for answer in range(2):
            is_right = group < 4 and answer == 0
            trouble = "timeout: no verdict within 5 s" if group == 9 else ""
            counting.add(Verdict(is_right, group, "easy" if group < 5 else "hard", float(is_right), trouble))
    lines = counting.lines()
    assert lines[0].startswith("right: 4 of 20, 20.0% (95% interval ")
    assert lines[1:] == (
        "prompts with a right one among 2: 4 of 10",
        "  easy: 4 of 10, 40.0% (95% interval 16.8% to 68.7%)",
        "  hard: 0 of 10, 0.0% (95% interval 0.0% to 43.4%)",
        "2 counted as not right: timeout: no verdict within 5 s",
    )
    data = counting.as_data()
    assert (data["right"], data["total"], data["share"], data["mean_score"]) == (4, 20, 0.2, 0.2)
    assert data["by_tag"]["easy"]["groups_right"] == 4
    assert data["troubles"] == {"timeout: no verdict within 5 s": 2}


def test_no_samples_are_no_division_by_zero() -> None:
    assert Counting("prompts").lines() == ("right: 0 of 0",)
    assert Counting("prompts").as_data() == {"right": 0, "total": 0}
