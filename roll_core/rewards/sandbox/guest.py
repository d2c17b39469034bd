"""The process of a program: it runs the program's text, then does with its objects what tests ask for.

A lone file, run by `python -I -S guest.py`, with `wire.py` beside it and a socket as descriptor 3. Nothing here is
trusted: the program shares this process and may change all of it.
"""

from __future__ import annotations

import builtins
import os
import site
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_core.rewards.sandbox import wire
else:
    sys.path.insert(0, __file__.rpartition("/")[0])
    import wire

BUILT_IN = ("str", "repr", "bool", "len", "iter", "next", "abs", "int", "float", "hash", "reversed")


class Guest:
    """Objects by number, and the channel to the tests."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.channel = wire.Channel(socket.socket(fileno=3), self.serve)
        self.names: dict[str, Any] = {"__name__": "solution", "__builtins__": builtins}

    def run(self) -> None:
        while True:
            try:
                message = self.channel.receive()
            except wire.Lost:
                return
            self.channel.send(self.serve(message))

    def serve(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self, "do_" + message["op"])(message)
            return answer
        except wire.Lost:
            os._exit(1)
        except BaseException as error:
            return {"raised": self.described(error)}

    def do_load(self, message: dict[str, Any]) -> dict[str, Any]:
        site.setquit()
        exec(wire.PRELUDE, self.names)
        before = dict(self.names)
        module: Any = type(sys)("solution")
        module.__dict__.update(self.names)
        self.names = module.__dict__
        sys.modules["solution"] = module
        exec(compile(message["text"], "solution.py", "exec"), self.names)
        own = [n for n, v in self.names.items() if n not in before or before[n] is not v]
        return {"names": [n for n in own if not n.startswith("__") and not isinstance(self.names[n], type(sys))]}

    def do_name(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"value": self.encode(self.names[message["name"]])}

    def do_do(self, message: dict[str, Any]) -> dict[str, Any]:
        target = self.objects[message["on"]]
        args = [self.decode(one) for one in message["args"]]
        keywords = {name: self.decode(one) for name, one in message["keywords"].items()}
        name = message["name"]
        if name == "get":
            return {"value": self.encode(getattr(target, args[0]))}
        if name == "set":
            setattr(target, args[0], args[1])
            return {"value": None}
        if name == "instance":
            return {"value": isinstance(args[0], target)}
        if name == "call":
            value = target(*args, **keywords)
        elif name in BUILT_IN:
            value = getattr(builtins, name)(target)
        else:
            value = getattr(target, name)(*args, **keywords)
        answer = {"value": self.encode(value)}
        changed = {str(i): self.encode(one) for i, one in enumerate(args) if isinstance(one, wire.MUTABLE)}
        answer["args"] = {i: one for i, one in changed.items() if one != message["args"][int(i)]}
        return answer

    def encode(self, value: Any) -> Any:
        return wire.encode(value, self.refer)

    def decode(self, data: Any) -> Any:
        return wire.decode(data, self.resolve)

    def refer(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Callback):
            return {"t": "ref", "yours": value._number}
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects[number] = value
        told: dict[str, Any] = {"t": "ref", "mine": number, "type": type(value).__name__}
        if isinstance(value, type):
            told["class"] = value.__name__
            if issubclass(value, BaseException):
                told["bases"] = builtin_bases(value)
        return told

    def resolve(self, data: dict[str, Any]) -> Any:
        if "yours" in data:
            return self.objects[data["yours"]]
        return Callback(self, data["mine"])

    def described(self, error: BaseException) -> dict[str, Any]:
        kind = type(error)
        told: dict[str, Any] = {"bases": builtin_bases(kind), "text": str(error)[:2000]}
        told["args"] = [self.encode(one) for one in error.args[:10]]
        if kind.__name__ not in vars(builtins) or vars(builtins)[kind.__name__] is not kind:
            told["class"] = self.refer(kind)
            told["error"] = self.refer(error)
        return told


def builtin_bases(kind: type) -> list[str]:
    return [one.__name__ for one in kind.__mro__ if vars(builtins).get(one.__name__) is one]


class Callback:
    """An object of the tests, such as a function they pass."""

    def __init__(self, guest: Guest, number: int) -> None:
        self.__dict__.update(_guest=guest, _number=number)

    def _ask(self, name: str, *args: Any, **keywords: Any) -> Any:
        guest = self._guest
        request = {
            "op": "do",
            "on": self._number,
            "name": name,
            "args": [guest.encode(one) for one in args],
            "keywords": {key: guest.encode(one) for key, one in keywords.items()},
        }
        answer = guest.channel.call(request)
        if "raised" in answer:
            names = [name for name in answer["raised"]["bases"] if name in vars(builtins)]
            raise getattr(builtins, names[0])(answer["raised"]["text"])
        return guest.decode(answer["value"])

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._ask("call", *args, **keywords)

    def __getattr__(self, name: str) -> Any:
        return self._ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, value)


def main() -> None:
    sys.path.extend(sys.argv[1:])
    sys.setrecursionlimit(10_000)
    Guest().run()


if __name__ == "__main__":
    main()
