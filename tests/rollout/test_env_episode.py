"""Episodes as rows of tokens: nothing that was sampled is tokenised again, and only that is trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from roll_core.errors import DataError
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.env_batch import episode_metrics, records, to_batch, validation_metrics
from roll_core.rollout.env_dialogue import Dialogue, fill
from roll_core.rollout.env_episode import Episode, Plan, Style
from roll_core.rollout.environments import Fault, Observed
from tests.rollout.dialogues import byte_dialogue

PARAMS = SamplingParams(max_new_tokens=50)
PLAN = Plan(group=0, member=1, tag="Lake", env_group=2, episode=3, seed=4)


@pytest.fixture(scope="module")
def dialogue() -> Dialogue:
    return byte_dialogue()


def episode(dialogue: Dialogue, **style: object) -> Episode:
    return Episode(PLAN, Style(tag="Lake", **style), dialogue)  # type: ignore[arg-type]


def ask(one: Episode) -> GenerationRequest | None:
    return one.request(PARAMS, "train/1", seed_of=lambda name: len(name))


def answer(one: Episode, request: GenerationRequest, text: str, *, end: bool = True) -> str:
    ids = one.dialogue.tokenizer(text + "<|im_end|>" * end, add_special_tokens=False)["input_ids"]
    reason = "stop" if end else "length"
    return one.answered(Completion(request.request_id, tuple(ids), (-0.5,) * len(ids), reason, 0))  # type: ignore[arg-type]


def play(
    one: Episode, answers: Sequence[str], *, end: bool = True, last: str = "terminated"
) -> list[GenerationRequest]:
    one.begin(Observed("see 0", instruction="Rules. "))
    requests = []
    for number, text in enumerate(answers, start=1):
        request = ask(one)
        assert request is not None
        requests.append(request)
        assert answer(one, request, text, end=end) == text
        metrics = {"success": float(number == len(answers)), "action_is_valid": float(text != "?")}
        is_last = number == len(answers) and last == "terminated"
        one.observed(Observed(f"see {number}", 0.5, is_last, metrics=metrics, aggregation={"success": "last"}))
    return requests


def test_each_prompt_begins_with_the_one_before_and_what_was_sampled_after_it(dialogue: Dialogue) -> None:
    one = episode(dialogue)
    requests = play(one, ["Left", "Up", "Right"])
    [row] = one.rows
    rest = list(row.response_ids)
    for request, following in pairwise(requests):
        assert following.prompt_ids[: len(request.prompt_ids)] == request.prompt_ids
    assert dialogue.full_text_of((*row.prompt_ids, *rest)) == (
        "<|im_start|>user\nRules. see 0<|im_end|>\n<|im_start|>assistant\nLeft<|im_end|>\n"
        "<|im_start|>user\nsee 1<|im_end|>\n<|im_start|>assistant\nUp<|im_end|>\n"
        "<|im_start|>user\nsee 2<|im_end|>\n<|im_start|>assistant\nRight<|im_end|>"
    )
    said = [dialogue.full_text_of(rest[turn.start : turn.end]) for turn in row.turns]
    assert said == ["Left<|im_end|>", "Up<|im_end|>", "Right<|im_end|>"]


def test_only_what_was_sampled_is_in_the_mask_and_has_log_probabilities(dialogue: Dialogue) -> None:
    one = episode(dialogue)
    play(one, ["Left", "Up"])
    [row] = one.rows
    sampled = [token for token, is_sampled in zip(row.response_ids, row.mask) if is_sampled]
    assert dialogue.full_text_of(sampled) == "Left<|im_end|>Up<|im_end|>"
    assert row.log_probs == [-0.5 if is_sampled else 0.0 for is_sampled in row.mask]
    assert row.mask[0] and row.mask[-1]


def test_an_answer_that_was_cut_off_is_ended_by_the_template(dialogue: Dialogue) -> None:
    one = episode(dialogue)
    play(one, ["Lef", "Up"], end=False)
    [row] = one.rows
    assert "assistant\nLef<|im_end|>\n<|im_start|>user" in dialogue.full_text_of((*row.prompt_ids, *row.response_ids))
    assert sum(row.mask) == 5


def test_ids_that_text_would_not_give_again_are_kept(dialogue: Dialogue) -> None:
    one = episode(dialogue)
    one.begin(Observed("x"))
    request = ask(one)
    assert request is not None
    half = dialogue.tokenizer("\u221a", add_special_tokens=False)["input_ids"][:2]
    one.answered(Completion(request.request_id, tuple(half), (-1.0, -1.0), "length", 0))
    one.observed(Observed("y"))
    following = ask(one)
    assert following is not None
    start = len(request.prompt_ids)
    assert list(following.prompt_ids[start : start + 2]) == half


def test_a_full_sequence_ends_the_episode_with_its_last_answer(dialogue: Dialogue) -> None:
    one = episode(dialogue, sequence_length=55)
    play(one, ["Left"], last="goes on")
    assert ask(one) is None
    assert one.end == "max_length"
    assert one.rows[0].mask[-1]


def test_a_first_prompt_without_room_for_an_answer_is_a_fault(dialogue: Dialogue) -> None:
    one = episode(dialogue, sequence_length=20)
    one.begin(Observed("a" * 40))
    assert ask(one) is None
    assert one.end == "fault"
    assert one.fault == Fault("too_long", "the first prompt leaves no token for an answer in sequence_length 20")
    assert one.rows == []


@pytest.mark.parametrize("is_stepwise", [False, True])
def test_an_episode_goes_on_from_its_state_as_if_it_had_never_stopped(dialogue: Dialogue, is_stepwise: bool) -> None:
    one, again = (episode(dialogue, is_stepwise=is_stepwise) for _ in range(2))
    play(one, ["Left", "?"], last="goes on")
    asked = ask(one)
    again.restore(json.loads(json.dumps(one.state())))
    assert again.asked(PARAMS, "train/1", lambda name: len(name)) == asked
    for each in (one, again):
        assert asked is not None
        answer(each, asked, "Up")
        each.observed(Observed("over", 1.0, terminated=True, metrics={"success": 1.0}))
    assert again.state() == one.state()
    assert (again.rows, again.turns, again.metrics()) == (one.rows, one.turns, one.metrics())


def test_an_answer_gets_no_more_tokens_than_are_left(dialogue: Dialogue) -> None:
    one = episode(dialogue, sequence_length=40, max_tokens_per_step=30)
    one.begin(Observed("see"))
    request = ask(one)
    assert request is not None
    assert request.params.max_new_tokens == 40 - len(request.prompt_ids)


def test_steps_end_the_episode(dialogue: Dialogue) -> None:
    one = episode(dialogue, max_steps=2)
    play(one, ["Left", "Up"], last="goes on")
    assert one.end == "max_steps"


def test_a_fault_ends_the_episode(dialogue: Dialogue) -> None:
    one = episode(dialogue)
    play(one, ["Left"], last="goes on")
    one.observed(Fault("hang", "gone"))
    assert one.end == "fault"


def test_by_steps_each_answer_has_a_row_and_a_prompt_with_all_that_came_before(dialogue: Dialogue) -> None:
    template = "{env_instruction}{history}now {current_step}: {current_observation}"
    one = episode(dialogue, is_stepwise=True, agent_template=template)
    play(one, ["Left", "?", "Up"])
    assert len(one.rows) == 3
    assert dialogue.full_text_of(one.rows[2].prompt_ids) == (
        "<|im_start|>user\nRules. 1: see 0\nLeft\n2: see 1\n? (this answer named no valid action)\nnow 3: see 2"
        "<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [turn.step for row in one.rows for turn in row.turns] == [0, 1, 2]


def test_history_is_as_long_as_the_config_says(dialogue: Dialogue) -> None:
    one = episode(dialogue, is_stepwise=True, history_length=1, agent_template="{history}|{current_observation}")
    play(one, ["Left", "Up", "Down"])
    assert "user\n2: see 1\nUp\n|see 2<" in dialogue.full_text_of(one.rows[2].prompt_ids)


def test_braces_of_a_template_that_name_nothing_stay() -> None:
    assert fill('{"a": {observation}} {b}', {"observation": "{x}"}) == '{"a": {x}} {b}'


def test_a_template_without_a_place_for_the_turn_is_told(dialogue: Dialogue) -> None:
    odd = Dialogue(dialogue.tokenizer, "native")
    odd.tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(DataError, match="the chat template 'native' leaves out a turn of the tool after an answer"):
        odd.continuation({"role": "tool", "content": "42"}, 0)


def test_a_batch_has_a_row_for_each_trajectory_or_step(dialogue: Dialogue) -> None:
    long, short = episode(dialogue), episode(dialogue, is_stepwise=True)
    play(long, ["Left", "Up"])
    play(short, ["Left", "Up"])
    batch = to_batch([long, short], dialogue, 0, 100)
    assert len(batch) == 3
    assert batch["trajectory"].tolist() == [0, 1, 1]
    assert batch["scores"].tolist() == [1.0, 1.0, 1.0]
    assert batch["response_mask"].sum(-1).tolist() == [8, 5, 3]
    assert batch["response_lengths"].tolist()[1:] == [5, 3]
    assert (batch["infer_log_probs"] != 0).equal(batch["response_mask"])
    assert batch["id"][0] == "Lake_2_3_4_1_0"


def test_metrics_and_records_say_how_episodes_went(dialogue: Dialogue) -> None:
    one = episode(dialogue)
    play(one, ["Left", "?"])
    metrics = episode_metrics([one]) | validation_metrics([one])
    assert metrics["env/Lake/success"] == 1.0
    assert metrics["env/Lake/action_is_valid"] == 0.5
    assert metrics["val/success"] == metrics["val_correct/Lake/mean"] == 1.0
    assert metrics["traj/num_turns/mean"] == 2.0
    assert metrics["traj/end/terminated"] == 1.0
    [record] = [json.loads(json.dumps(record)) for record in records([one], dialogue)]
    assert [turn["answer"] for turn in record["turns"]] == ["Left", "?"]
    assert record["score"] == 1.0
