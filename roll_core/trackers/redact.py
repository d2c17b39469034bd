"""Keeping secrets out of what is logged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "(hidden)"
MIN_SECRET_LENGTH = 6
"""Shorter ones, such as a password of one letter, would be found inside ordinary words."""

_SECRET_KEY = re.compile(
    r"(^|[_\-.])(api_?key|access_?key(_id)?|secret(_?key)?|private_?key|auth_?key|passwd|password|credentials?|authorization"
    r"|login_kwargs|webhook(_?url)?|secret\w*)$",
    re.IGNORECASE,
)
_TOKEN_KEY = re.compile(r"(^|[_\-.])token$", re.IGNORECASE)
# Tokens of a vocabulary, which are no secrets.
_VOCABULARY = re.compile(
    r"(^|_)(bos|eos|pad|unk|sep|cls|mask|stop|think|image|video|audio|special|end|start)_token$", re.IGNORECASE
)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")


def redact(value: Any) -> Any:
    """The same config, with the values of keys such as `api_key`, `password` and `HF_TOKEN` hidden.

    Logins inside addresses (`https://user:password@host`) are hidden too.
    """
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if is_secret_key(str(key)) and entry not in (None, "") else redact(entry)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(entry) for entry in value]
    return _URL_LOGIN.sub(HIDDEN, value) if isinstance(value, str) else value


def is_secret_key(key: str) -> bool:
    """Whether a config key or an environment variable of this name holds a secret."""
    if _SECRET_KEY.search(key):
        return True
    return bool(_TOKEN_KEY.search(key)) and not _VOCABULARY.search(key)


def secret_values(value: Any) -> set[str]:
    """Every text that `redact` would hide by its key."""
    found: set[str] = set()
    if isinstance(value, Mapping):
        for key, entry in value.items():
            found |= _texts(entry) if is_secret_key(str(key)) else secret_values(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            found |= secret_values(entry)
    return found


def reveal(value: Any) -> Any:
    """The same config with pydantic's `SecretStr`s as plain text, for the library that is to log in with them."""
    if isinstance(value, Mapping):
        return {key: reveal(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [reveal(entry) for entry in value]
    get_secret = getattr(value, "get_secret_value", None)
    return value if get_secret is None else get_secret()


def hide(text: str, secrets: Iterable[str]) -> str:
    """A text, such as another library's error message, without these secrets in it."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET_LENGTH:
            text = text.replace(secret, HIDDEN)
    return text


def _texts(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return {text for entry in value.values() for text in _texts(entry)}
    return {value} if isinstance(value, str) and value else set()
