"""A language model as judge, asked over OpenAI's chat API whether a response is right.

A judge with an engine of its own is asked the same, and read in the same way: `roll_core.rewards.judge_engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from roll_core.rewards.answer import answer_part
from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.chat_api import ApiFailed, ChatApi, Reply
from roll_core.rewards.judge_prompts import fill, prompt_text, row_problem
from roll_core.rewards.judge_verdict import NoVerdict, read_verdict


@dataclass(frozen=True)
class Question:
    """What a judge is asked about one response; `mark` is what stands around the response in the prompt."""

    prompt: str
    response: str
    mark: str


class LLMJudgeReward(Reward):
    """1.0 where the judge says YES, 0.0 where it says NO.

    Status `could_not_grade` where its reply is no verdict, or the row lacks the reference that the prompt needs;
    `error` where the server gives no reply after all tries. Thinking parts are left out, of response and judge.

    Costs, added up as `rewards/<domain>/...`: `judge_requests`, `judge_retries`, `judge_prompt_tokens`,
    `judge_completion_tokens`, and `judge_failures` (samples without a verdict).

    Args:
        url: `judge_api_url`, such as http://host:8000/v1.
        model: `judge_model_name`, as the server calls it.
        api_key: `judge_api_key`.
        prompt: `judge_prompt`: a name of `JUDGE_PROMPTS`, or a text with {response}, and {question} and {reference}.
        max_tokens: of the judge's reply, its thinking included.
        temperature: 0 takes the likeliest reply.
        timeout_s: seconds for one request.
        tries: requests made for one sample; pauses between them grow.
        first_pause_s: seconds before the second try.
    """

    num_processes: ClassVar[int] = 8
    deadline_s: ClassVar[float | None] = 150.0

    def __init__(
        self,
        url: str = "",
        model: str = "",
        api_key: str = "",
        prompt: str = "equivalence",
        max_tokens: int = 1024,
        temperature: float = 0.0,
        timeout_s: float = 60.0,
        tries: int = 4,
        first_pause_s: float = 1.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise TypeError(f"judge_api_url must be given, as http://host:8000/v1; found {url!r}")
        if not model:
            raise TypeError("judge_model_name must be given, as the server calls the model")
        if max_tokens < 1 or tries < 1 or timeout_s <= 0 or first_pause_s < 0 or temperature < 0:
            raise TypeError("max_tokens, tries and timeout_s must be positive, the others not negative")
        self.text = prompt_text(prompt)
        self.max_tokens, self.temperature = max_tokens, temperature
        # The pool's deadline ends a judge that is slow beyond this; the budget lets it say why before that.
        self.api = ChatApi(url, model, api_key, timeout_s, tries, first_pause_s, budget_s=120.0)

    def row_problem(self, sample: RewardSample) -> str | None:
        """What a row lacks for the judge's prompt."""
        return row_problem(self.text, sample)

    def self_test(self) -> list[str]:
        """Whether the server answers, and the judge tells a right answer from a wrong one."""
        hurried = replace(self.api, tries=2, timeout_s=min(20.0, self.api.timeout_s), budget_s=40.0)
        return judge_problems(lambda sample: self._score(sample, hurried), self.api.model)

    def score(self, sample: RewardSample) -> Score:
        """Ask the judge about one response; a blank one is wrong without asking."""
        return self._score(sample, self.api)

    def _score(self, sample: RewardSample, api: ChatApi) -> Score:
        question = question_about(self.text, sample)
        if isinstance(question, Score):
            return question
        try:
            reply = api.ask(question.prompt, self.max_tokens, self.temperature)
        except ApiFailed as error:
            return no_reply(str(error), error.num_requests)
        return score_of(question, reply, self.max_tokens)


def question_about(text: str, sample: RewardSample) -> Question | Score:
    """What to ask about a response, with the places of `text` filled; a score where there is nothing to ask."""
    problem = row_problem(text, sample)
    if problem is not None:
        return Score(0.0, Status.COULD_NOT_GRADE, problem)
    response = answer_part(sample.response).strip()
    if not response:
        return Score(0.0, reason="the response is empty")
    prompt, mark = fill(text, sample.question or sample.prompt, sample.ground_truth, response)
    return Question(prompt, response, mark)


def score_of(question: Question, reply: Reply, max_tokens: int) -> Score:
    """What a judge's reply says of the response it was asked about."""
    try:
        if reply.is_cut_off:
            raise NoVerdict(f"the judge's reply was cut off after {max_tokens} tokens")
        is_right = read_verdict(reply.text, question.response, question.mark)
    except NoVerdict as error:
        return Score(0.0, Status.COULD_NOT_GRADE, str(error), costs=_costs(reply, has_failed=True))
    return Score(float(is_right), reason="" if is_right else "the judge says NO", costs=_costs(reply, False))


def no_reply(reason: str, num_requests: int, status: Status = Status.ERROR) -> Score:
    """The score of a response that a judge was asked about `num_requests` times, and of which it said nothing."""
    costs = {"judge_requests": num_requests, "judge_retries": max(0, num_requests - 1), "judge_failures": 1}
    return Score(0.0, status, reason, costs={name: float(cost) for name, cost in costs.items()})


def judge_problems(score: Callable[[RewardSample], Score], name: str) -> list[str]:
    """Whether a judge answers at all, and tells a right answer from a wrong one: sentences about what is amiss."""
    for response, is_right in (("The answer is 4.", True), ("The answer is 5.", False)):
        found = score(RewardSample("self-test", "What is 2 + 2?", response, "4"))
        if found.status is not Status.OK:
            return [f"the judge {name} cannot be used: {found.reason}"]
        if bool(found.score) is not is_right:
            said = "right" if found.score else "wrong"
            return [f"the judge {name} finds '{response}' {said}, asked what 2 + 2 is"]
    return []


def _costs(reply: Reply, has_failed: bool) -> dict[str, float]:
    return {
        "judge_requests": float(reply.num_requests),
        "judge_retries": float(reply.num_requests - 1),
        "judge_prompt_tokens": float(reply.prompt_tokens),
        "judge_completion_tokens": float(reply.completion_tokens),
        "judge_failures": float(has_failed),
    }
