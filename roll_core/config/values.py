"""Kinds of values that several parts of a config share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from roll_core.config.device_mapping import DeviceMappingError, parse_device_mapping

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
DType = Literal["fp32", "float32", "float", "fp16", "float16", "half", "bf16", "bfloat16"]


def _environment(given: Any) -> Any:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise PydanticCustomError("environment", "a mapping from a variable's name to its value is expected")
    converted: dict[str, str] = {}
    for name, value in given.items():
        if value is None or isinstance(value, bool):
            word = "null" if value is None else str(value).lower()
            raise PydanticCustomError(
                "environment",
                "variable {name} has the value {word}, which is no text; put it in quotes, for example {name}: '1'",
                {"name": str(name), "word": word},
            )
        if not isinstance(value, int | float | str):
            raise PydanticCustomError("environment", "variable {name} must hold text", {"name": str(name)})
        converted[str(name)] = str(value)
    return converted


def _devices(given: Any) -> Any:
    if given is None:
        return None
    try:
        return parse_device_mapping(given)
    except DeviceMappingError as error:
        raise PydanticCustomError("device_mapping", "{reason}", {"reason": str(error)}) from None


def _names(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _from_home(given: Any) -> Any:
    return os.path.expanduser(given) if isinstance(given, str) else given  # noqa: PTH111  A name of a hub is no path.


def _run_name(given: str) -> str:
    path = PurePath(given)
    if not given.strip() or path.is_absolute() or ".." in path.parts:
        raise PydanticCustomError("run_name", "names folders below others: not empty, not absolute, and without '..'")
    return given


def _nothing_is_empty(given: Any) -> Any:
    return {} if given is None else given


Environment = Annotated[dict[str, str], BeforeValidator(_environment)]
"""Variables for a process. Numbers become text; true, false and null are refused, since no process reads them alike."""

Devices = Annotated[list[int] | None, BeforeValidator(_devices)]
"""Device numbers of a role, in order: see `roll_core.config.device_mapping`."""

Folder = Annotated[str, BeforeValidator(_from_home)]
"""A path, in which `~` is the user's home."""

RunName = Annotated[str, AfterValidator(_run_name)]
"""The name of a run, and of the folders that its output goes to."""

Names = Annotated[list[str], BeforeValidator(_names)]
"""A list of names; a single one may stand without brackets."""

Options = Annotated[dict[str, Any], BeforeValidator(_nothing_is_empty)]
"""Keys that are handed on to whatever they configure, which checks them; `~` is an empty mapping."""
