"""Objects of one process used from another, over a socket: values by copy, everything else by reference.

Runs on both sides. The side of the tests (`remote`) trusts nothing that comes in: what arrives is JSON, from which only
plain values and references are made. The side of the program (`guest`) is a lone file beside this one, so both use
the standard library alone.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import fractions
import json
import socket
from collections.abc import Callable
from typing import Any

PRELUDE = """
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator, random, re, string, sys
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
del pow
"""
"""What programs and tests may use without importing it. `from math import *` hides a built-in name: hence the end."""
PLAIN = (type(None), bool, str, float)
SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
TEXTS = {"Decimal": decimal.Decimal, "Fraction": fractions.Fraction, "complex": complex}
TIMES = {"datetime": datetime.datetime, "date": datetime.date, "time": datetime.time}
MAPPINGS = {"Counter": collections.Counter, "OrderedDict": collections.OrderedDict, "defaultdict": dict}
MUTABLE = (list, dict, set, bytearray, collections.deque, collections.Counter, collections.OrderedDict)
DEEPEST = 100
LONGEST = 64 * 2**20
"""Bytes of one message."""
_NAME_OF = {kind: name for table in (SEQUENCES, TEXTS, TIMES) for name, kind in table.items()}
_BUILTINS = {id(value): name for name, value in vars(builtins).items() if not name.startswith("_")}


class Lost(Exception):
    """The other process is gone, or speaks nonsense."""


def encode(value: Any, refer: Callable[[Any], Any], depth: int = 0) -> Any:
    """A value as JSON data; `refer` says how to name what cannot be copied."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is int:
        return value if -(2**53) < value < 2**53 else {"t": "int", "v": hex(value)}
    if depth > DEEPEST:
        return refer(value)
    if kind is list:
        return [encode(one, refer, depth + 1) for one in value]
    if kind in (dict, collections.Counter, collections.OrderedDict, collections.defaultdict):
        pairs = [[encode(key, refer, depth + 1), encode(one, refer, depth + 1)] for key, one in value.items()]
        return {"t": kind.__name__, "v": pairs}
    if kind in (bytes, bytearray):
        return {"t": kind.__name__, "v": value.hex()}
    if kind in _NAME_OF:
        name = _NAME_OF[kind]
        if name in SEQUENCES:
            return {"t": name, "v": [encode(one, refer, depth + 1) for one in value]}
        return {"t": name, "v": value.isoformat() if name in TIMES else str(value)}
    if kind is datetime.timedelta:
        return {"t": "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if kind is range:
        return {"t": "range", "v": [value.start, value.stop, value.step]}
    if kind is slice:
        return {"t": "slice", "v": [encode(one, refer, depth + 1) for one in (value.start, value.stop, value.step)]}
    if id(value) in _BUILTINS:
        return {"t": "builtin", "v": _BUILTINS[id(value)]}
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        items = [encode(one, refer, depth + 1) for one in tuple.__iter__(value)]
        return {"t": "namedtuple", "v": items, "n": kind.__name__, "f": list(map(str, kind._fields))}
    return refer(value)


def decode(data: Any, resolve: Callable[[dict[str, Any]], Any]) -> Any:
    """The value again; `resolve` is given what the other side named.

    Raises:
        Lost: the data is not what `encode` makes.
    """
    if not isinstance(data, dict):
        return [decode(one, resolve) for one in data] if isinstance(data, list) else data
    try:
        return _decode(str(data["t"]), data, resolve)
    except Lost:
        raise
    except Exception as error:
        raise Lost(f"it sent no value: {type(error).__name__}") from error


def _decode(tag: str, data: dict[str, Any], resolve: Callable[[dict[str, Any]], Any]) -> Any:
    if tag == "ref":
        return resolve(data)
    value = data["v"]
    if tag in ("dict", *MAPPINGS):
        pairs = [(decode(key, resolve), decode(one, resolve)) for key, one in value]
        return MAPPINGS.get(tag, dict)(dict(pairs))
    if tag in SEQUENCES:
        return SEQUENCES[tag](decode(one, resolve) for one in value)
    if tag in TEXTS:
        return TEXTS[tag](str(value))
    if tag in TIMES:
        return TIMES[tag].fromisoformat(value)  # type: ignore[attr-defined]
    if tag == "int":
        return int(value, 16)
    if tag in ("bytes", "bytearray"):
        return (bytes if tag == "bytes" else bytearray)(bytes.fromhex(value))
    if tag == "timedelta":
        return datetime.timedelta(*map(int, value))
    if tag == "range":
        return range(*map(int, value))
    if tag == "slice":
        return slice(*(decode(one, resolve) for one in value))
    if tag == "builtin" and value in _BUILTINS.values():
        return getattr(builtins, value)
    if tag == "namedtuple":
        return collections.namedtuple(str(data["n"]), [str(name) for name in data["f"]])(  # type: ignore[misc]
            *(decode(one, resolve) for one in value)
        )
    raise Lost(f"it sent an unknown kind of value: {tag!r:.40}")


class Channel:
    """Messages of JSON, one a line. A call may be answered by calls in the other direction before its answer comes."""

    def __init__(self, connection: socket.socket, serve: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._connection, self._serve = connection, serve
        self._stream = connection.makefile("rb")

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            Lost: nobody is there.
        """
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Lost("it has ended") from error

    def receive(self) -> dict[str, Any]:
        """The next message.

        Raises:
            Lost: there will be none, or it is none.
        """
        try:
            line = self._stream.readline(LONGEST)
            message = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError, RecursionError) as error:
            raise Lost("it sent nonsense") from error
        if not isinstance(message, dict):
            raise Lost("it has ended" if not line else "it sent nonsense")
        return message

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer, serving the other side until it comes."""
        self.send(request)
        while True:
            message = self.receive()
            if "op" not in message:
                return message
            self.send(self._serve(message))
