import pytest

from roll_core.objects import ObjectError
from roll_core.rollout.filters import group_filter


@pytest.mark.parametrize(
    ("kind", "arguments", "scores", "kept"),
    [
        ("no_filter", {}, [0, 0], True),
        ("mean_filter", {"threshold_up": 0.9, "threshold_down": 0.1}, [0, 1], True),
        ("mean_filter", {"threshold_up": 0.9, "threshold_down": 0.1}, [1, 1], False),
        ("mean_filter", {"threshold_down": 0.5}, [0, 1], False),
        ("mean_filter", {}, [0, 0], True),
        ("std_filter", {"std_threshold": 0}, [1, 1], False),
        ("std_filter", {"std_threshold": 0}, [0, 1], True),
        ("std_filter", {"std_threshold": 0}, [1], False),
        ("std_filter", {}, [1, 1], True),
    ],
)
def test_filters_keep_what_their_thresholds_say(
    kind: str, arguments: dict[str, float], scores: list[float], kept: bool
) -> None:
    assert group_filter(kind)(scores, arguments) is kept


def test_a_misspelt_filter_is_refused() -> None:
    with pytest.raises(ObjectError, match="mean_filter"):
        group_filter("meen_filter")
