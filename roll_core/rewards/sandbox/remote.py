"""A program's objects as tests see them: values are copies, everything else is a `Remote` that asks the program.

Tests run here, in a process that the program cannot see, so no program finds what a test expects. What comes back is
not trusted: an object of the program's own class never equals a plain value, whatever its `__eq__` says, and its
comparisons with one must not contradict each other.
"""

from __future__ import annotations

import builtins
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

from roll_core.rewards.sandbox import wire
from roll_core.rewards.sandbox.wire import Lost

_HIDDEN = ("_", "gi_", "f_", "tb_", "co_", "cr_", "ag_", "func_")
"""How the names of attributes begin that would let a program look around in the tests' process."""
_OPPOSITE = {"__lt__": "__ge__", "__ge__": "__lt__", "__gt__": "__le__", "__le__": "__gt__"}


class Program:
    """A loaded program: its global names, and the objects that tests hold.

    Raises:
        Lost: the program's process ended.
    """

    def __init__(self, connection: socket.socket, text: str) -> None:
        self._channel = wire.Channel(connection, self._serve)
        self._shown: list[Any] = []
        self._remotes: dict[int, Any] = {}
        answer = self._answer({"op": "load", "text": text})
        self.names = [name for name in answer.get("names", ()) if isinstance(name, str)]

    def name(self, name: str) -> Any:
        """What a global name of the program stands for."""
        return self.decode(self._answer({"op": "name", "name": name}).get("value"))

    def do(self, number: int, name: str, *args: Any, **keywords: Any) -> Any:
        """Let the program do something with one of its objects; lists and the like that it changes are changed here."""
        encoded = [self.encode(one) for one in args]
        named = {key: self.encode(one) for key, one in keywords.items()}
        answer = self._answer({"op": "do", "on": number, "name": name, "args": encoded, "keywords": named})
        changed = answer.get("args") or {}
        if not isinstance(changed, dict):
            raise Lost("it sent nonsense")
        for index, data in changed.items():
            if index.isdecimal() and int(index) < len(args):
                _overwrite(args[int(index)], self.decode(data))
        return self.decode(answer.get("value"))

    def encode(self, value: Any) -> Any:
        """A value of the tests for the program."""
        return wire.encode(value, self._refer)

    def decode(self, data: Any) -> Any:
        """A value of the program for the tests."""
        return wire.decode(data, self._resolve)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._channel.call(request)
        if "raised" in answer:
            raise self._error(answer["raised"])
        return answer

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Remote):
            return {"t": "ref", "yours": value._number}
        if isinstance(value, type) and issubclass(value, RemoteError):
            return {"t": "ref", "yours": value.number}
        if isinstance(value, RemoteError) and value.remote is not None:
            return {"t": "ref", "yours": value.remote._number}
        for number, shown in enumerate(self._shown):
            if shown is value:
                return {"t": "ref", "mine": number}
        self._shown.append(value)
        return {"t": "ref", "mine": len(self._shown) - 1}

    def _resolve(self, data: dict[str, Any]) -> Any:
        if "yours" in data:
            return self._shown[data["yours"]]
        number = int(data["mine"])
        if number not in self._remotes:
            is_error = "class" in data and data.get("bases")
            self._remotes[number] = self._error_class(data) if is_error else Remote(self, number, str(data["type"]))
        return self._remotes[number]

    def _error_class(self, data: dict[str, Any]) -> type:
        base = _builtin_error(data["bases"])

        def make(cls: Any, *args: Any, **keywords: Any) -> Any:
            return self.do(cls.number, "call", *args, **keywords)

        body = {"number": int(data["mine"]), "__new__": make}
        return type(str(data["class"])[:100], (RemoteError, base), body)

    def _error(self, told: Any) -> BaseException:
        try:
            args = [self.decode(one) for one in told["args"]]
            if "class" not in told:
                kind = _builtin_error(told["bases"])
                try:
                    return kind(*args)
                except TypeError:
                    return kind(str(told["text"]))
            kind = self.decode(told["class"])
            error: RemoteError = kind.__mro__[2].__new__(kind, *args)
            error.args = tuple(args)
            error.__dict__["remote"] = self.decode(told["error"])
            return error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise Lost("it sent no error") from error

    def _serve(self, message: dict[str, Any]) -> dict[str, Any]:
        """The program uses an object of the tests, such as a function that was passed to it."""
        try:
            target = self._shown[message["on"]]
            args = [self.decode(one) for one in message["args"]]
            keywords = {str(name): self.decode(one) for name, one in message["keywords"].items()}
            if message["name"] == "call":
                return {"value": self.encode(target(*args, **keywords))}
            if not isinstance(args[0], str) or args[0].startswith(_HIDDEN):
                raise AttributeError("that is hidden")
            if message["name"] == "get":
                return {"value": self.encode(getattr(target, args[0]))}
            setattr(target, args[0], args[1])
            return {"value": None}
        except Exception as error:
            bases = [kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind]
            return {"raised": {"bases": bases, "text": type(error).__name__}}


class RemoteError(BaseException):
    """An exception class of the program's own; each is a subclass beside the built-in one it descends from."""

    number = -1
    remote: Remote | None = None

    def __getattr__(self, name: str) -> Any:
        if self.remote is None or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.remote, name)

    def __str__(self) -> str:
        return str(self.remote) if self.remote is not None else super().__str__()


class Remote:
    """An object that lives with the program."""

    def __init__(self, program: Program, number: int, kind: str) -> None:
        self.__dict__.update(_program=program, _number=number, _kind=kind)

    def _ask(self, name: str, *args: Any, **keywords: Any) -> Any:
        return self._program.do(self._number, name, *args, **keywords)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._ask("call", *args, **keywords)

    def __getattr__(self, name: str) -> Any:
        return self._ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, value)

    def __instancecheck__(self, instance: Any) -> bool:
        return self._ask("instance", instance) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return self is kind or self in getattr(kind, "__mro__", ())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Remote):
            return False
        return self._number == other._number or self._ask("__eq__", other) is True

    def __hash__(self) -> int:
        value = self._ask("hash")
        return value if isinstance(value, int) else 0

    def __bool__(self) -> bool:
        return self._ask("bool") is True

    def __len__(self) -> int:
        return _whole(self._ask("len"))

    def __index__(self) -> int:
        return _whole(self._ask("__index__"))

    def __int__(self) -> int:
        return _whole(self._ask("int"))

    def __float__(self) -> float:
        return float(self._ask("float"))

    def __str__(self) -> str:
        return str.__str__(self._ask("str"))

    def __repr__(self) -> str:
        return str.__str__(self._ask("repr"))

    def __iter__(self) -> Iterator[Any]:
        iterator = self._ask("iter")
        if not isinstance(iterator, Remote):
            raise TypeError(f"{self._kind} gave no iterator")
        return iterator

    def __next__(self) -> Any:
        return self._ask("next")

    def __reversed__(self) -> Any:
        return self._ask("reversed")

    def __abs__(self) -> Any:
        return self._ask("abs")

    def _compare(self, name: str, other: Any) -> Any:
        if isinstance(other, Remote):
            return self._ask(name, other)
        asked = [name, _OPPOSITE[name]]
        random.shuffle(asked)
        told = {one: self._ask(one, other) for one in asked}
        if told[name] is True and told[_OPPOSITE[name]] is True:
            raise TypeError(f"{self._kind} contradicts itself when it is compared")
        return told[name]


def _asking(name: str) -> Callable[..., Any]:
    def method(self: Remote, *args: Any) -> Any:
        return self._ask(name, *args)

    return method


def _combining(name: str) -> Callable[..., Any]:
    def method(self: Remote, other: Any) -> Any:
        try:
            return self._ask(name, other)
        except AttributeError:
            return NotImplemented

    return method


def _comparing(name: str) -> Callable[..., Any]:
    def method(self: Remote, other: Any) -> Any:
        return self._compare(name, other)

    return method


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
):
    for _prefix in ("", "r"):
        setattr(Remote, f"__{_prefix}{_name}__", _combining(f"__{_prefix}{_name}__"))
for _name in ("neg", "pos", "invert", "getitem", "setitem", "delitem", "contains", "enter", "exit", "round"):
    setattr(Remote, f"__{_name}__", _asking(f"__{_name}__"))
for _name in _OPPOSITE:
    setattr(Remote, _name, _comparing(_name))


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("it is no whole number")
    return value


def _builtin_error(names: Any) -> type[BaseException]:
    for name in names:
        found = getattr(builtins, str(name), None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
    raise Lost("it sent no error")


def _overwrite(old: Any, new: Any) -> None:
    if type(old) is not type(new):
        return
    if isinstance(old, list | bytearray):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif hasattr(old, "extend"):
        old.clear()
        old.extend(new)
