"""What an environment variable may hold, and what is wrong with a text that it cannot."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Protocol


class Value(Protocol):
    """A kind of value. `fault` is empty where the text is one of that kind, else what is wrong with it."""

    def fault(self, text: str) -> str: ...


@dataclass(frozen=True)
class AnyText:
    """Whatever is written."""

    def fault(self, text: str) -> str:
        return ""


@dataclass(frozen=True)
class Whole:
    """A whole number in a range, both ends included."""

    low: int
    high: int

    def fault(self, text: str) -> str:
        if re.fullmatch(r"\d+", text) and self.low <= int(text) <= self.high:
            return ""
        return f"must be a whole number from {self.low} to {self.high}"


@dataclass(frozen=True)
class OneOf:
    """One of a few words; upper and lower case count alike where `any_case` is set."""

    words: tuple[str, ...]
    any_case: bool = False

    def fault(self, text: str) -> str:
        words = tuple(word.lower() for word in self.words) if self.any_case else self.words
        return "" if (text.lower() if self.any_case else text) in words else f"must be one of {', '.join(self.words)}"


@dataclass(frozen=True)
class Ports:
    """`auto`, or port numbers and ranges of them such as 61000-61050, separated by commas."""

    def fault(self, text: str) -> str:
        if text == "auto":
            return ""
        try:
            ranges = sorted(port_ranges(text))
        except ValueError:
            return "must be auto, or ports and ranges of them such as 61000-61050, separated by commas"
        if any(low < 1 or high > 65535 or low > high for low, high in ranges):
            return "must name ports from 1 to 65535, the lower end of a range first"
        if any(first[1] >= second[0] for first, second in itertools.pairwise(ranges)):
            return "names a port twice"
        return ""


@dataclass(frozen=True)
class Address:
    """An IPv4 or IPv6 address."""

    def fault(self, text: str) -> str:
        import ipaddress

        try:
            ipaddress.ip_address(text)
        except ValueError:
            return "must be an IP address"
        return ""


def port_ranges(text: str) -> list[tuple[int, int]]:
    """First and last port of each part of a list such as 60000,61000-61050.

    Raises:
        ValueError: a part is neither a port nor a range of ports.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise ValueError(part)
        found.append((int(match[1]), int(match[2] or match[1])))
    return found
