"""The judge asks vLLM's own OpenAI server, which comes up late and is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from roll_core.inference.vllm import installed
from roll_core.rewards import RewardSample, Score, Status
from roll_core.rewards.llm_judge import LLMJudgeReward
from roll_core.rewards.worker import RewardWorker
from tests.inference.vllm_engines import NOT_INSTALLED
from tests.rewards.chat_server import chat_server
from tests.rewards.judge_engines import save_tokenizer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(installed.folder() is None, reason=NOT_INSTALLED),
]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}\nJudge:"
SIZE = 320
SAMPLES = [RewardSample(str(number), "", f"It is {number}.", "4", question="What is 2 + 2?") for number in range(12)]


def save_judge(folder: Path) -> Path:
    """A model that says YES to everything: each token of its text decides the next."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(folder))
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=SIZE,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=5,
        num_key_value_heads=5,
        max_position_embeddings=4096,
        eos_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    [colon, y, e, s] = [tokenizer.convert_tokens_to_ids(letter) for letter in ":YES"]
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight[range(257), range(257)] = 1.0
        for token, following in ((colon, y), (y, e), (e, s), (s, 0)):
            model.lm_head.weight[following, token] = 1.0
    model.save_pretrained(folder)
    return folder


@contextmanager
def server(folder: Path, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """vLLM's server, on its way up; it is killed at the end, and whatever it started with it."""
    options = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "judge", "--dtype", "float32"]
    options += ["--max-model-len", "4096", "--enforce-eager", "--chat-template", TEMPLATE]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), *options]
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | variables, start_new_session=True
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def asked_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> Score:
    """The score of a right answer, from a judge that waits as long as a server may take to come up."""
    judge = LLMJudgeReward(url, "judge", max_tokens=16, first_pause_s=0.5)
    judge.api = replace(judge.api, tries=100, budget_s=600.0)
    with ThreadPoolExecutor(1) as thread:
        scoring = thread.submit(judge.score, SAMPLES[4])
        while not scoring.done() and process.poll() is None:
            wait([scoring], timeout=1.0)
        if not scoring.done():
            # Nobody will ever listen there: let the judge find that something does, and refuses.
            with socket.create_server(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) as refusing:
                connection, _ = refusing.accept()
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 the server died\r\nContent-Length: 0\r\n\r\n")
                connection.close()
        score = scoring.result()
    assert score.status is Status.OK, f"{score.reason}\n{log.read_text()[-3000:]}"
    return score


def test_the_judge_waits_for_a_server_that_comes_up_and_for_one_that_died(tmp_path: Path) -> None:
    folder, port, log = save_judge(tmp_path / "judge"), free_port(), tmp_path / "server.log"
    url = f"http://127.0.0.1:{port}/v1"
    with server(folder, port, log) as process:
        # Nobody listens yet: connections are refused, and tried again after growing pauses.
        first = asked_until_it_answers(url, process, log)
        assert first.score == 1.0 and first.costs["judge_retries"] >= 1.0
        # "YES" and its end are four tokens.
        assert first.costs["judge_completion_tokens"] == 4.0 and first.costs["judge_prompt_tokens"] > 500.0
        worker = RewardWorker("llm_judge", {"url": url, "model": "judge", "max_tokens": 16})
        try:
            scores = worker.compute_rewards(SAMPLES)
            assert worker.self_test() == ["the judge judge finds 'The answer is 5.' right, asked what 2 + 2 is"]
        finally:
            worker.close()
        assert [score.score for score in scores] == [1.0] * len(SAMPLES), scores
        assert sum(score.costs["judge_requests"] for score in scores) == len(SAMPLES)
        cut_off = LLMJudgeReward(url, "judge", max_tokens=2).score(SAMPLES[0])
        assert cut_off.status is Status.COULD_NOT_GRADE and cut_off.costs["judge_failures"] == 1.0
        unknown = LLMJudgeReward(url, "another").score(SAMPLES[0])
        assert unknown.status is Status.ERROR and "asked once: HTTP 404" in unknown.reason
        too_long = LLMJudgeReward(url, "judge").score(replace(SAMPLES[0], ground_truth="4" * 5000))
        assert too_long.status is Status.ERROR and "asked once: HTTP 400" in too_long.reason
    dead = LLMJudgeReward(url, "judge", tries=2, first_pause_s=0.01).score(SAMPLES[0])
    assert dead.status is Status.ERROR and "asked 2 times: Connection" in dead.reason
    # What comes back in its place is a small server: another start of vLLM would show nothing else.
    with ThreadPoolExecutor(1) as thread:
        with socket.create_server(("127.0.0.1", port)) as dying:
            scoring = thread.submit(LLMJudgeReward(url, "judge", first_pause_s=0.1).score, SAMPLES[4])
            dying.accept()[0].close()
        with chat_server(lambda _: "YES", port):
            again = scoring.result(timeout=120)
    assert again.status is Status.OK and again.score == 1.0 and again.costs["judge_retries"] >= 1.0
