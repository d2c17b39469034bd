"""What every part of a config has in common: unknown keys are errors, and nothing is changed after loading."""

from __future__ import annotations

import types
import typing
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo


class Section(BaseModel):
    """A mapping of a config with known keys.

    `without_effect` holds keys that published configs carry and that do nothing, each with the reason. They
    are accepted and dropped here; `roll_core.config.keys` reports one notice for each.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, coerce_numbers_to_str=True, protected_namespaces=()
    )

    without_effect: ClassVar[dict[str, str]] = {}

    @classmethod
    def keys_without_effect(cls) -> dict[str, str]:
        """The keys of this section and of those it extends that are accepted and do nothing."""
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            found |= vars(base).get("without_effect", {})
        return found

    @model_validator(mode="before")
    @classmethod
    def _drop_keys_without_effect(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        ignored = cls.keys_without_effect()
        return {key: value for key, value in given.items() if key not in ignored}

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # YAML's `yes` and `on` are booleans, and Python would read them as the number 1 without a word.
        if isinstance(value, bool) and info.field_name and _wants_number(cls.model_fields[info.field_name].annotation):
            raise PydanticCustomError("number_expected", "a number is expected, not true or false")
        return value


def _wants_number(annotation: Any) -> bool:
    kinds = _kinds(annotation)
    return bool(kinds & {int, float}) and bool not in kinds


def _kinds(annotation: Any) -> set[Any]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return set().union(*(_kinds(part) for part in typing.get_args(annotation)))
    return {annotation}
