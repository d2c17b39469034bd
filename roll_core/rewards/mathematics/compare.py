r"""Whether an answer means the same as the reference.

`quick_verdict` decides what needs no computer algebra, at a bounded cost. `verdict` decides the rest with sympy and may
take forever on hostile input, so it runs in a process that can be killed.

Choices where mathematics alone does not decide:

- A percentage and a bare number are equal if the number is the proportion (25% and 0.25), or is above 1 and is the
  percentage without its sign (25% and 25).
- A unit, a currency sign or `x =` on one side only is ignored. Units on both sides must agree.
- A list without brackets equals a set with the same elements, and a tuple with the same elements in the same order.
  A set and a tuple differ. `[1,2]` and `(1,2)` differ.
- `y = 2x` and `f(x) = 2x` are equal. The natural numbers begin at 1.
- A column vector equals the tuple of its entries.
- Ratios are equal if their parts are proportional in the same order, and `2:3` equals 2/3. Two times of day differ
  unless they are the same, and so do two ranges "2 to 3".
- An inequality in one variable equals the interval of its solutions.
- A decimal equals a number that no finite decimal is equal to (1/3, pi) if it agrees with it to all its digits and has
  at least six. Two decimals must be exactly equal.
- Congruences state least residues: `10 \bmod 7`, `x \equiv 3 \pmod 7` and a bare 3 are equal.
- Letters and words are compared without regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from roll_core.rewards.mathematics import exact, units
from roll_core.rewards.mathematics.algebra import (
    Algebra,
    CannotCompare,
    NeedsAlgebra,
    NoAlgebra,
    UnreadableAnswer,
    UnreadableReference,
)
from roll_core.rewards.mathematics.nodes import (
    Items,
    Matrix,
    Node,
    Ratio,
    Relation,
    Residue,
    Scalar,
    SetOperation,
    Word,
)
from roll_core.rewards.mathematics.notation import clean
from roll_core.rewards.mathematics.ratios import same_ratio
from roll_core.rewards.mathematics.scalars import BASE_NUMERAL, folded, same_scalar
from roll_core.rewards.mathematics.structure import read, readings

# Nobody's final answer is longer; a parser given more would take minutes.
MAX_CHARACTERS = 2000
_MAX_ITEMS = 60
_CHOICE = re.compile(r"\(?([A-Ja-j])\)?")
_CHOICE_WITH_TEXT = re.compile(r"\(?([A-Ja-j])(?:\)|[.:](?=[ \\])) ?(.+)", re.DOTALL)
_FUNCTION_OF_X = re.compile(r"y|[fgh]\(x\)")


def quick_verdict(reference: str, answer: str) -> bool | None:
    """Whether an answer is right, or None where that takes algebra to tell."""
    try:
        is_right = _verdict(reference, answer, NoAlgebra())
    except NeedsAlgebra:
        return None
    # Against a reference that nobody can read, no answer is wrong.
    return is_right if is_right or any(_is_plain(node) for node in readings(clean(reference))) else None


def verdict(reference: str, answer: str) -> bool:
    """Whether an answer is right.

    Raises:
        UnreadableAnswer, UnreadableReference, CannotCompare: there is no verdict, for the reason the message says.
    """
    # sympy and the LaTeX parser take a second to import, and most answers never need them.
    from roll_core.rewards.mathematics.symbolic import SympyAlgebra, can_read

    unreadable = [can_read(node) for node in readings(clean(reference))]
    if all(unreadable):
        raise UnreadableReference(f"the reference cannot be read: {unreadable[0]}")
    return _verdict(reference, answer, SympyAlgebra())


def _verdict(reference: str, answer: str, algebra: Algebra) -> bool:
    if reference.strip() == answer.strip():
        return True
    if len(answer) > MAX_CHARACTERS:
        raise UnreadableAnswer(f"the boxed answer has more than {MAX_CHARACTERS} characters")
    reference, answer = clean(reference), clean(answer)
    if folded(_without_text(reference)) == folded(_without_text(answer)):
        return True
    choice = _CHOICE.fullmatch(reference)
    chosen = _CHOICE_WITH_TEXT.fullmatch(_without_text(answer))
    if chosen and choice:
        return chosen.group(1).lower() == choice.group(1).lower()
    wanted = _CHOICE_WITH_TEXT.fullmatch(_without_text(reference))
    if wanted and wanted.group(1).isupper() and _CHOICE.fullmatch(answer):
        return answer.strip("()").upper() == wanted.group(1)
    if chosen and answer.startswith("("):
        answer = chosen.group(2)
    unsure: Exception | None = None
    for expected in readings(reference):
        for given in readings(answer):
            try:
                if _same(expected, given, algebra):
                    return True
            except (NeedsAlgebra, UnreadableAnswer, CannotCompare) as error:
                unsure = error
    if unsure is not None:
        raise unsure
    return False


def _without_text(text: str) -> str:
    return re.sub(r"\\text ?\{([^{}]*)\}", r" \1 ", text).strip()


def _is_plain(node: Node) -> bool:
    """Whether a node can be read without an algebra system."""
    if isinstance(node, Scalar):
        value = units.split_unit(node.text)[0].removesuffix("%").strip()
        is_symbol = re.fullmatch(r"[A-Za-z]|-?\\infty", value) is not None
        return is_symbol or exact.exact_value(value) is not None or BASE_NUMERAL.fullmatch(value) is not None
    if isinstance(node, Ratio):
        return all(_is_plain(Scalar(part)) for part in node.parts)
    return isinstance(node, Word | Residue) or (isinstance(node, Items) and all(_is_plain(item) for item in node.items))


def _same(reference: Node, answer: Node, algebra: Algebra) -> bool:
    if reference == answer:
        return True
    reference, answer = _as_tuple_beside(answer, reference), _as_tuple_beside(reference, answer)
    if isinstance(reference, Relation) and isinstance(answer, Relation):
        return _same_relation(reference, answer, algebra)
    if isinstance(reference, Relation) and reference.is_equation:
        value = _stated_value(reference)
        return value is not None and _same(value, answer, algebra)
    if isinstance(answer, Relation) and answer.is_equation:
        value = _stated_value(answer)
        return value is not None and _same(reference, value, algebra)
    if any(_is_region(node) for node in (reference, answer)):
        return all(_may_be_region(node) for node in (reference, answer)) and algebra.same_set(reference, answer)
    if isinstance(reference, Items) and isinstance(answer, Items):
        return _same_items(reference, answer, algebra)
    if isinstance(reference, Items) or isinstance(answer, Items):
        return _same_single(reference, answer, algebra)
    if isinstance(reference, Matrix) or isinstance(answer, Matrix):
        return _same_matrix(reference, answer, algebra)
    if isinstance(reference, Residue) or isinstance(answer, Residue):
        return _same_residue(reference, answer)
    if isinstance(reference, Ratio) or isinstance(answer, Ratio):
        return same_ratio(reference, answer, algebra)
    if isinstance(reference, Scalar) and isinstance(answer, Scalar):
        return same_scalar(reference.text, answer.text, algebra)
    return False


def _is_region(node: Node) -> bool:
    """Whether a node is a set of reals given by a condition or by set operations."""
    if isinstance(node, Items):
        return any(_is_region(item) for item in node.items)
    return isinstance(node, SetOperation) or (isinstance(node, Relation) and not node.is_equation)


def _may_be_region(node: Node) -> bool:
    if isinstance(node, Items):
        return not node.is_bracketed or len(node.items) == 2
    return not isinstance(node, Word | Matrix | Residue | Ratio)


def _same_items(reference: Items, answer: Items, algebra: Algebra) -> bool:
    if reference.is_bracketed and answer.is_bracketed:
        # With two entries the brackets say open or closed; with more they are decoration.
        is_open = [(items.left, items.right) for items in (reference, answer)]
        if len(reference.items) == 2 and is_open[0] != is_open[1]:
            return False
        return _same_sequence(reference.items, answer.items, algebra)
    if reference.is_bracketed or answer.is_bracketed:
        bracketed, other = (reference, answer) if reference.is_bracketed else (answer, reference)
        if other.is_set or (bracketed.left, bracketed.right) != ("(", ")"):
            return False
        return _same_sequence(reference.items, answer.items, algebra)
    expected, given = list(reference.items), list(answer.items)
    if reference.is_set or answer.is_set:
        expected = _distinct(expected, algebra)
        try:
            given = _distinct(given, algebra)
        except UnreadableReference as error:
            # Here the answer's elements are compared with each other.
            raise UnreadableAnswer(str(error)) from None
    return _same_collection(expected, given, algebra)


def _same_sequence(reference: Sequence[Node], answer: Sequence[Node], algebra: Algebra) -> bool:
    if len(reference) != len(answer):
        return False
    return all(_same(expected, given, algebra) for expected, given in zip(reference, answer))


def _same_collection(reference: list[Node], answer: list[Node], algebra: Algebra) -> bool:
    if len(reference) != len(answer):
        return False
    if len(reference) > _MAX_ITEMS:
        return _same_sequence(reference, answer, algebra)
    remaining = list(answer)
    for expected in reference:
        match = next((index for index, given in enumerate(remaining) if _same(expected, given, algebra)), None)
        if match is None:
            return False
        del remaining[match]
    return True


def _distinct(items: list[Node], algebra: Algebra) -> list[Node]:
    if len(items) > _MAX_ITEMS:
        return items
    kept: list[Node] = []
    for item in items:
        if not any(_same(other, item, algebra) for other in kept):
            kept.append(item)
    return kept


def _as_tuple_beside(other: Node, node: Node) -> Node:
    """A column vector beside a tuple, as the tuple of its entries; any other node as it is."""
    if not isinstance(node, Matrix) or not isinstance(other, Items) or other.left != "(" or len(node.rows) < 2:
        return node
    is_column = all(len(row) == 1 for row in node.rows)
    return Items(tuple(row[0] for row in node.rows), "(", ")") if is_column else node


def _same_single(reference: Node, answer: Node, algebra: Algebra) -> bool:
    """A set or list of one element equals the element."""
    for items in (reference, answer):
        if isinstance(items, Items) and (items.is_bracketed or len(items.items) != 1):
            return False
    expected = reference.items[0] if isinstance(reference, Items) else reference
    given = answer.items[0] if isinstance(answer, Items) else answer
    return _same(expected, given, algebra)


def _same_matrix(reference: Node, answer: Node, algebra: Algebra) -> bool:
    if not isinstance(reference, Matrix) or not isinstance(answer, Matrix) or len(reference.rows) != len(answer.rows):
        return False
    return all(_same_sequence(expected, given, algebra) for expected, given in zip(reference.rows, answer.rows))


def _same_residue(reference: Node, answer: Node) -> bool:
    """Beside a congruence, a bare number is its least residue. Two residues were equal before, or differ."""
    residue, other = (reference, answer) if isinstance(reference, Residue) else (answer, reference)
    return isinstance(residue, Residue) and isinstance(other, Scalar) and exact.exact_value(other.text) == residue.value


def _same_relation(reference: Relation, answer: Relation, algebra: Algebra) -> bool:
    if not (reference.is_equation and answer.is_equation):
        return not (reference.is_equation or answer.is_equation) and algebra.same_set(reference, answer)
    names = [folded(relation.sides[0]) for relation in (reference, answer)]
    plain = [re.sub(r"_\{\w+\}$", "", name) for name in names]
    # Of several roots, x_1 is one and x is each; x_1 and x_2 differ.
    is_root = plain[0] == plain[1] and (plain[0] == names[0]) != (plain[1] == names[1])
    is_same_name = names[0] == names[1] or is_root or all(_FUNCTION_OF_X.fullmatch(name) for name in names)
    if is_same_name and _names_a_quantity(reference.sides[0]):
        return _same(read(reference.sides[-1]), read(answer.sides[-1]), algebra)
    return algebra.same_equation(reference, answer)


def _stated_value(equation: Relation) -> Node | None:
    """The value that an equation states for what it names, or None if it has to be solved for one."""
    first, last = equation.sides[0], equation.sides[-1]
    if _names_a_quantity(first):
        return read(last)
    if len(equation.sides) == 2 and re.fullmatch(r"[A-Za-z](?:_\{\w+\})?", last):
        return read(first)
    numbers = [exact.exact_value(side) for side in equation.sides]
    # A chain of numbers (6 \cdot 7 = 42) states its value if it is true.
    return read(last) if None not in numbers and len(set(numbers)) == 1 else None


def _names_a_quantity(side: str) -> bool:
    # x, a_1, f(2), AB, |AB|, a+b, \text{Area}: letters without numbers. 2x+4y and x^2 are no names: 2x=10 is not "10".
    side = re.sub(r"\\text ?\{[^{}]*\}", "A", side)
    side = re.sub(r"_ ?\{[^{}]*\}|(?<=[A-Za-z}]) ?\([^()]*\)", "", side)
    return re.search(r"[A-Za-z]", side) is not None and re.search(r"\d|\\sqrt|\\infty|\\pi", side) is None
