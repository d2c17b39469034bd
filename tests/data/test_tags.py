from __future__ import annotations

from types import SimpleNamespace

import pytest

from roll_core.data.tags import tag_routes
from roll_core.errors import ConfigError


def test_a_reward_answers_to_its_tags_and_to_its_own_name():
    assert tag_routes({"math_rule": {"tag_included": ["deepmath_103k", "aime"]}}) == {
        "deepmath_103k": "math_rule",
        "aime": "math_rule",
        "math_rule": "math_rule",
    }


def test_a_name_that_another_reward_claims_as_a_tag_goes_there():
    routes = tag_routes({"math_rule": {}, "strict": {"tag_included": ["math_rule"]}})
    assert routes == {"math_rule": "strict", "strict": "strict"}


def test_published_tags_reach_the_rewards_they_were_made_for():
    routes = tag_routes({"code_sandbox": {"tag_included": None}, "llm_judge": {}})
    assert routes == {
        "code_sandbox": "code_sandbox",
        "llm_judge": "llm_judge",
        "KodCode": "code_sandbox",
        "RLVR": "llm_judge",
    }


def test_published_tags_without_their_reward_reach_nothing():
    assert tag_routes({"math_rule": {}}) == {"math_rule": "math_rule"}


def test_a_published_tag_can_be_claimed_by_another_reward():
    assert tag_routes({"code_sandbox": {}, "mine": {"tag_included": ["KodCode"]}})["KodCode"] == "mine"


def test_rewards_may_be_objects():
    assert tag_routes({"math_rule": SimpleNamespace(tag_included=["aime"])})["aime"] == "math_rule"


def test_a_tag_of_two_rewards_is_an_error():
    with pytest.raises(ConfigError) as error:
        tag_routes({"a": {"tag_included": ["aime"]}, "b": {"tag_included": ["aime"]}})
    assert str(error.value) == (
        "1 problem\n- rewards.b.tag_included: the tag is claimed by rewards.a too\n"
        "    given: 'aime'\n    try:   leave it to one of rewards.a and rewards.b"
    )
