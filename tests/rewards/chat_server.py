"""A small server that speaks OpenAI's chat API, for tests: what it says is given by a function of the prompt."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What the server sends: a model's text; or a status, or bytes, in its place."""

    text: str | None = ""
    status: int = 200
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    delay_s: float = 0.0
    hangs_up: bool = False


@dataclass
class ChatServer:
    """The server's address, and what it was asked, in order. `most_at_once` requests were open at a time."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    most_at_once: int = 0

    @property
    def prompts(self) -> list[str]:
        return [request["messages"][0]["content"] for request in self.requests]


@contextmanager
def chat_server(say: Callable[[str], Answer | str], port: int = 0) -> Iterator[ChatServer]:
    state = ChatServer("")
    lock = threading.Lock()
    open_now = 0

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal open_now
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                open_now += 1
                state.most_at_once = max(state.most_at_once, open_now)
                state.requests.append(body)
                state.keys.append(self.headers.get("Authorization", ""))
                state.paths.append(self.path)
                given = say(body["messages"][0]["content"])
            answer = Answer(given) if isinstance(given, str) else given
            time.sleep(answer.delay_s)
            with lock:
                open_now -= 1
            if answer.hangs_up:
                self.connection.close()
                return
            message = {"role": "assistant", "content": answer.text}
            completion = {
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107},
            }
            content = json.dumps(completion).encode() if answer.raw is None else answer.raw
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
