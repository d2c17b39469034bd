"""Changes to YAML as text: every other character stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from roll_core.migrate.yaml_text import YamlText

TEXT = """# head
a: 1   # one

b:
  # about c
  c: {x: 1, y: [1, 2]}
  d: ${z}  # dee
  e:
    f: 'x'   # eff
    # behind f

# ==== next ====
g:
  h: |
    several
    lines

  k: ~
m:
  - one   # first
  - two
"""


def changed(change: Callable[[YamlText], None], text: str = TEXT) -> str:
    yaml_text = YamlText(text)
    change(yaml_text)
    yaml.safe_load(yaml_text.text)
    return yaml_text.text


@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        (lambda y: y.set(("a",), 2), "a: 1   # one", "a: 2   # one"),
        (lambda y: y.set(("b", "c", "x"), True), "{x: 1, y", "{x: true, y"),
        (lambda y: y.set(("b", "c", "n"), {"o": 1}), "y: [1, 2]}", "y: [1, 2], n: {o: 1}}"),
        (lambda y: y.set(("b", "d"), {"p": 1}), "d: ${z}  # dee\n", "d:   # dee\n    p: 1\n"),
        (lambda y: y.set(("b", "e", "g"), [1]), "# eff\n", "# eff\n    g:\n      - 1\n"),
        (lambda y: y.set(("b", "e", "g"), 1, first=True), "  e:\n", "  e:\n    g: 1\n"),
        (lambda y: y.set(("g", "k"), "text"), "  k: ~", "  k: text"),
        (lambda y: y.set(("g", "k", "l"), 1), "  k: ~\n", "  k:\n    l: 1\n"),
        (lambda y: y.set(("n", "o"), "1"), "  - two\n", "  - two\nn:\n  o: '1'\n"),
        (lambda y: y.remove(("a",)), "a: 1   # one\n", ""),
        (lambda y: y.remove(("b", "c", "x")), "{x: 1, y", "{y"),
        (lambda y: y.remove(("b", "c", "y")), "x: 1, y: [1, 2]}", "x: 1}"),
        (lambda y: y.remove(("b", "e", "f")), "  e:\n    f: 'x'   # eff\n", "  e: {}\n"),
        (lambda y: y.remove(("g", "h")), "  h: |\n    several\n    lines\n", ""),
        (lambda y: y.rename(("b", "d"), "dd"), "  d: ${z}", "  dd: ${z}"),
        (lambda y: y.remove_item(("m",), "one"), "  - one   # first\n", ""),
        (lambda y: y.remove_item(("m",), "three"), "", ""),
    ],
)
def test_one_change_leaves_all_else(change: Callable[[YamlText], None], old: str, new: str) -> None:
    assert changed(change) == TEXT.replace(old, new, 1)


def test_a_list_without_its_last_item_goes() -> None:
    assert "m:" not in changed(lambda y: [y.remove_item(("m",), one) for one in ("one", "two")] and None)


def test_an_alias_is_replaced_where_it_stands_and_its_anchor_stays() -> None:
    text = "a: &x {p: 1}\nb: *x  # the same\nc: 2\n"
    assert changed(lambda y: y.set(("b",), {"q": 1}), text) == "a: &x {p: 1}\nb:   # the same\n  q: 1\nc: 2\n"


def test_a_file_without_a_last_line_end_gets_one_only_where_something_follows() -> None:
    assert changed(lambda y: y.set(("a",), 2), "a: 1") == "a: 2"
    assert changed(lambda y: y.set(("b",), 2), "a: 1") == "a: 1\nb: 2\n"


def test_line_ends_of_other_systems_are_kept() -> None:
    assert changed(lambda y: y.set(("a", "c"), 2), "a:\r\n  b: 1\r\n") == "a:\r\n  b: 1\r\n  c: 2\r\n"


def test_an_empty_value_is_filled_in() -> None:
    assert changed(lambda y: y.set(("a",), 2), "a:\nb: 1\n") == "a: 2\nb: 1\n"
    assert changed(lambda y: y.set(("a", "x"), 2), "a:\nb: 1\n") == "a:\n  x: 2\nb: 1\n"


def test_text_that_reads_as_something_else_is_quoted() -> None:
    assert changed(lambda y: y.set(("a",), "1"), "a: 2\n") == "a: '1'\n"


def test_what_the_file_has_is_known_apart_from_what_it_refers_to() -> None:
    yaml_text = YamlText(TEXT)
    assert yaml_text.has(("b", "c", "x"))
    assert not yaml_text.has(("b", "d", "x"))
    assert yaml_text.is_section(("b", "e"))
    assert not yaml_text.is_section(("b", "d"))
    assert yaml_text.raw(("b", "d")) == "${z}"
    assert yaml_text.keys(("b", "c")) == ["x", "y"]
