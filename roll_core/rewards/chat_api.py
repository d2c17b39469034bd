"""A client of servers that speak OpenAI's chat API: one request at a time, with tries, pauses and a time budget."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.errors import RollError

# Worth another try: overload, restarts and proxies. All other statuses come again.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_MAX_BYTES = 16 << 20
_LONGEST_PAUSE_S = 16.0


class ApiFailed(RollError):
    """A server gave no reply. `num_requests` were made."""

    def __init__(self, reason: str, num_requests: int) -> None:
        super().__init__(reason)
        self.num_requests = num_requests


@dataclass(frozen=True)
class Reply:
    """What a model said, whether it was cut off at its length limit, and what that took."""

    text: str
    is_cut_off: bool
    num_requests: int
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class ChatApi:
    """A model behind a server.

    Args:
        url: of the API ("http://host:8000/v1"), or of its chat completions.
        model: the name under which the server has it.
        api_key: sent as a bearer token where it is not empty.
        timeout_s: for one request.
        tries: requests made before giving up.
        first_pause_s: before the second try; doubled before each further one, up to 16 s, unless the server asks for
            another.
        budget_s: for all tries and pauses together.
    """

    url: str
    model: str
    api_key: str = ""
    timeout_s: float = 60.0
    tries: int = 4
    first_pause_s: float = 1.0
    budget_s: float = 120.0

    def ask(self, prompt: str, max_tokens: int, temperature: float) -> Reply:
        """A model's reply to a prompt.

        Raises:
            ApiFailed: the server refused, or gave no usable reply within tries and budget; says what happened last.
        """
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        end = time.monotonic() + self.budget_s
        for number in range(1, self.tries + 1):
            try:
                return _reply(self._post(body, min(self.timeout_s, end - time.monotonic())), number)
            except _Failed as failure:
                grown = min(_LONGEST_PAUSE_S, self.first_pause_s * 2 ** (number - 1))
                pause = failure.pause_s or grown * random.uniform(0.75, 1.25)
                is_last = number == self.tries or not failure.is_passing or time.monotonic() + pause >= end
                if is_last:
                    times = "once" if number == 1 else f"{number} times"
                    raise ApiFailed(f"{self._address}, asked {times}: {failure}", number) from failure
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    @property
    def _address(self) -> str:
        return self.url if self.url.endswith("/chat/completions") else self.url.rstrip("/") + "/chat/completions"

    def _post(self, body: Mapping[str, Any], timeout_s: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(self._address, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=max(timeout_s, 0.001)) as response:
                content: bytes = response.read(_MAX_BYTES)
                return content
        except urllib.error.HTTPError as error:
            told = error.read(2000).decode(errors="replace").strip()
            pause = _seconds(error.headers.get("Retry-After"))
            raise _Failed(f"HTTP {error.code} {told[:300]}", error.code in _PASSING, pause) from error
        except (OSError, http.client.HTTPException) as error:
            # urllib wraps some of what sockets raise, and not the rest.
            reason = getattr(error, "reason", error)
            raise _Failed(f"{type(reason).__name__}: {reason}", True) from error


class _Failed(Exception):
    def __init__(self, reason: str, is_passing: bool, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.is_passing, self.pause_s = is_passing, pause_s


def _seconds(value: str | None) -> float:
    """Retry-After in seconds; its form as a date is not used by these servers."""
    try:
        return max(0.0, float(value or 0.0))
    except ValueError:
        return 0.0


def _reply(content: bytes, num_requests: int) -> Reply:
    try:
        parsed = json.loads(content)
        choice = parsed["choices"][0]
        text = choice["message"]["content"]
        usage = parsed.get("usage") or {}
        tokens = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _Failed(f"no chat completion but {content[:200]!r}", True) from error
    if text is not None and not isinstance(text, str):
        raise _Failed(f"a chat completion without text: {content[:200]!r}", True)
    return Reply(text or "", choice.get("finish_reason") == "length", num_requests, *tokens)
