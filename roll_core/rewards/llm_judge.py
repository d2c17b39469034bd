"""A language model as judge, asked over OpenAI's chat API whether a response is right."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from roll_core.rewards.answer import answer_part
from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.chat_api import ApiFailed, ChatApi, Reply
from roll_core.rewards.judge_prompts import fill, prompt_text
from roll_core.rewards.judge_verdict import NoVerdict, read_verdict


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
        if "{reference}" in self.text and not sample.ground_truth.strip():
            return "the judge compares with ground_truth, which is empty"
        return None

    def self_test(self) -> list[str]:
        """Whether the server answers, and the judge tells a right answer from a wrong one."""
        hurried = replace(self.api, tries=2, timeout_s=min(20.0, self.api.timeout_s), budget_s=40.0)
        for response, is_right in (("The answer is 4.", True), ("The answer is 5.", False)):
            sample = RewardSample("self-test", "What is 2 + 2?", response, "4")
            score = self._judge(sample, response, hurried)
            if score.status is not Status.OK:
                return [f"the judge {self.api.model} cannot be used: {score.reason}"]
            if bool(score.score) is not is_right:
                said = "right" if score.score else "wrong"
                return [f"the judge {self.api.model} finds '{response}' {said}, asked what 2 + 2 is"]
        return []

    def score(self, sample: RewardSample) -> Score:
        """Ask the judge about one response; a blank one is wrong without asking."""
        problem = self.row_problem(sample)
        if problem is not None:
            return Score(0.0, Status.COULD_NOT_GRADE, problem)
        response = answer_part(sample.response).strip()
        if not response:
            return Score(0.0, reason="the response is empty")
        return self._judge(sample, response, self.api)

    def _judge(self, sample: RewardSample, response: str, api: ChatApi) -> Score:
        prompt, mark = fill(self.text, sample.question or sample.prompt, sample.ground_truth, response)
        try:
            reply = api.ask(prompt, self.max_tokens, self.temperature)
        except ApiFailed as error:
            costs = {"judge_requests": error.num_requests, "judge_retries": error.num_requests - 1, "judge_failures": 1}
            return Score(0.0, Status.ERROR, str(error), costs={name: float(cost) for name, cost in costs.items()})
        try:
            if reply.is_cut_off:
                raise NoVerdict(f"the judge's reply was cut off after {self.max_tokens} tokens")
            is_right = read_verdict(reply.text, response, mark)
        except NoVerdict as error:
            return Score(0.0, Status.COULD_NOT_GRADE, str(error), costs=_costs(reply, has_failed=True))
        return Score(float(is_right), reason="" if is_right else "the judge says NO", costs=_costs(reply, False))


def _costs(reply: Reply, has_failed: bool) -> dict[str, float]:
    return {
        "judge_requests": float(reply.num_requests),
        "judge_retries": float(reply.num_requests - 1),
        "judge_prompt_tokens": float(reply.prompt_tokens),
        "judge_completion_tokens": float(reply.completion_tokens),
        "judge_failures": float(has_failed),
    }
