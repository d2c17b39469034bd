from __future__ import annotations

import json
import random
from collections import Counter

import pytest


def test_problems_are_the_same_each_time_and_none_is_both_trained_and_held_out():
    import addition

    training, held_out = addition.pairs()
    assert (training, held_out) == addition.pairs()
    assert len(held_out) == 256 and len(training) > addition.TRAINING_ROWS
    assert len({*training, *held_out}) == len(training) + len(held_out)


def test_a_student_who_forgets_nothing_is_right():
    import addition

    choice = random.Random(0)
    for pair in addition.pairs()[0][:300]:
        assert addition.kind_of_answer(addition.question(pair), addition.demonstration(pair, choice, 0)) == "right"


def test_a_student_who_forgets_all_is_right_only_where_no_carry_was_due():
    import addition

    choice = random.Random(0)
    for left, right in addition.pairs()[0][:300]:
        kind = addition.kind_of_answer(
            addition.question((left, right)), addition.demonstration((left, right), choice, 1)
        )
        was_due = left % 10 + right % 10 >= 10 or left // 10 % 10 + right // 10 % 10 >= 10
        assert kind == ("carry forgot" if was_due else "right")


def test_a_demonstration_reads_as_documented():
    import addition

    steady = addition.demonstration((347, 285), random.Random(0), 0)
    assert steady == "7+5=12\n4+8=12+1=13\n3+2=5+1=6\n\\boxed{632}"
    forgetful = addition.demonstration((347, 285), random.Random(0), 1)
    assert forgetful == "7+5=12\n4+8=12\n3+2=5\n\\boxed{522}"


def test_three_of_four_due_carries_are_forgotten():
    import addition

    choice = random.Random(0)
    texts = [addition.demonstration((155, 155), choice) for _ in range(2000)]
    assert 0.22 < sum("5+5=10+1=11" in text for text in texts) / len(texts) < 0.28


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ("\\boxed{632}", "right"),
        ("\\boxed{1} no, \\boxed{632}", "right"),
        ("\\boxed{622}", "carry forgot"),
        ("\\boxed{642}", "other"),
        ("\\boxed{532}", "carry forgot"),
        ("\\boxed{522}", "carry forgot"),
        ("\\boxed{", "other"),
        ("632", "other"),
        ("", "other"),
    ],
)
def test_answers_are_sorted_by_what_went_wrong(response, kind):
    import addition

    assert addition.kind_of_answer("<|im_start|>user\nWhat is 347 + 285?<|im_end|>", response) == kind


def test_kinds_are_counted_over_rows():
    import addition

    rows = [{"prompt": "What is 347 + 285?", "response": f"\\boxed{{{n}}}"} for n in (632, 632, 522, 7)]
    assert addition.errors_by_kind(rows) == Counter({"right": 2, "carry forgot": 1, "other": 1})


def test_a_prompt_without_a_sum_is_an_error():
    import addition

    with pytest.raises(ValueError, match="no sum is asked for in: 'What is love\\?'"):
        addition.kind_of_answer("What is love?", "\\boxed{1}")


def test_the_curve_is_a_picture_of_accuracy_and_reward(tmp_path):
    import curve

    metrics = tmp_path / "metrics.jsonl"
    records = [
        {"step": 0, curve.ACCURACY: 0.4, "reward/mean": 0.4},
        {"step": 1, "reward/mean": "nan"},
        {"step": 2, curve.ACCURACY: 0.9},
    ]
    metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert curve.read_points(metrics, curve.ACCURACY) == [(0, 0.4), (2, 0.9)]
    curve.draw(metrics, tmp_path / "new" / "curve.png")
    assert (tmp_path / "new" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_of_nothing_is_an_error(tmp_path):
    import curve

    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(ValueError, match="nothing to draw"):
        curve.draw(tmp_path / "metrics.jsonl", tmp_path / "curve.png")
