"""Test cases as rows hold them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

CODE_KINDS = ("pytest", "assert", "check_based", "text")
INPUT_KINDS = ("io", "stdin", "stdin_stdout", "input_output", "standard_input", "function", "call_based")
KINDS = (*CODE_KINDS, *INPUT_KINDS)


class BadCases(Exception):
    """The row's test cases cannot be used."""


@dataclass(frozen=True)
class Tests:
    """Python code that calls the program, or looks at the response's text where `kind` is text."""

    kind: Literal["pytest", "assert", "check_based", "text"]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Pairs:
    """What the program reads and what it must write; or, with `function`, arguments and the result, as JSON."""

    pairs: tuple[tuple[str, str], ...]
    function: str = ""


def read_cases(fields: Mapping[str, Any]) -> Tests | Pairs:
    """The cases of a row: columns `test_cases` (a list, or JSON text of one), `case_type`, `test_case_function`.

    Raises:
        BadCases: what is wrong, in a sentence; no case at all is no free pass.
    """
    kind = str(fields.get("case_type") or "").strip()
    if kind not in KINDS:
        raise BadCases(f"case_type is {kind!r}; known are {', '.join(KINDS)}")
    function = str(fields.get("test_case_function") or fields.get("entry_point") or "").strip()
    function = "" if function == "None" else function
    cases = _as_list(fields.get("test_cases"))
    if kind in INPUT_KINDS:
        return Pairs(tuple(pair for case in cases for pair in _pairs(case)), function or _named_function(cases))
    codes = [_code(case) for case in cases]
    if kind == "check_based":
        if not function:
            raise BadCases("case_type check_based needs the function's name in test_case_function")
        prefix = str(fields.get("import_prefix") or (cases[0].get("import_prefix") or "" if cases else ""))
        codes = [f"{prefix}\n{codes[0]}\ncheck({function})\n"]
    return Tests(kind, tuple(codes))  # type: ignore[arg-type]


def _as_list(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadCases(f"test_cases is no JSON: {error}") from None
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence) or not value:
        raise BadCases("test_cases holds no case" if value in ([], (), None, "") else "test_cases is no list")
    cases = [{"assert_code": case} if isinstance(case, str) else case for case in value]
    wrong = next((case for case in cases if not isinstance(case, Mapping)), None)
    if wrong is not None:
        raise BadCases(f"a case must be an object, found {type(wrong).__name__}")
    return [dict(case) for case in cases]


def _code(case: Mapping[str, Any]) -> str:
    code = case.get("assert_code") or case.get("code")
    if not isinstance(code, str) or not code.strip():
        raise BadCases(f"a case has no assert_code; it has: {', '.join(map(str, case)) or 'nothing'}")
    return code


def _pairs(case: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for given, wanted in (("stdin", "expected_stdout"), ("input", "output"), ("inputs", "outputs")):
        if given in case and wanted in case:
            inputs, outputs = case[given], case[wanted]
            if given != "inputs":
                inputs, outputs = [inputs], [outputs]
            if len(inputs) != len(outputs) or not inputs:
                raise BadCases(f"a case has {len(inputs)} {given} and {len(outputs)} {wanted}")
            return [(_text(one), _text(other)) for one, other in zip(inputs, outputs)]
    raise BadCases(f"a case has no stdin with expected_stdout; it has: {', '.join(map(str, case)) or 'nothing'}")


def _named_function(cases: Sequence[Mapping[str, Any]]) -> str:
    return next((str(case["fn_name"]) for case in cases if case.get("fn_name")), "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
