r"""The outer shape of an answer: number, word, list, set, tuple or interval, matrix, equation or inequality.

Only the leaves (single expressions) are left to a LaTeX parser; everything around them is read here, so verdicts about
intervals, sets and percentages do not depend on that parser's version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from roll_core.rewards.mathematics.nodes import (
    NOTHING,
    REALS,
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

_MAX_DEPTH = 12
_TOKEN = re.compile(
    r"\\begin ?\{[a-zA-Z*]+\}|\\end ?\{[a-zA-Z*]+\}|\\[{}]|\\[A-Za-z]+|\\.|<=|>=|!=|[()\[\]{}]|.", re.DOTALL
)
_OPENERS = ("(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil")
_CLOSERS = (")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil")
_SEPARATORS = (",", ";", "\\lor", "\\land")
_RELATIONS = ("=", "!=", "<", "<=", ">", ">=", "\\in", "\\approx")
_ARROWS = ("\\Rightarrow", "\\implies", "\\rightarrow", "\\to", "\\Longrightarrow", "\\iff", "\\Leftrightarrow")
_SET_OPERATORS = ("\\cup", "\\cap", "\\setminus", "\\backslash")
_MATRIX = re.compile(
    r"\\begin ?\{(?P<name>[pbB]?matrix|smallmatrix|array)\}(?P<body>.*)\\end ?\{(?P=name)\}", re.DOTALL
)
# A number times a matrix.
_MULTIPLE = re.compile(
    r"(?P<factor>(?:[-\d./ ]|\\frac ?\{[^{}]*\}\{[^{}]*\}|\\sqrt ?\{[^{}]*\})+?)(?: ?\\cdot)? ?"
    r"(?P<matrix>\\begin ?\{[pbB]?matrix\}(?:(?!\\begin).)*\\end ?\{[pbB]?matrix\})",
    re.DOTALL,
)
_TRANSPOSED = re.compile(r"(.*(?:\\end ?\{[a-zA-Z]+\}|[)\]])) ?\^ ?\{ ?(?:T|t|\\top|\\intercal) ?\}", re.DOTALL)
_CASES = re.compile(r"\\begin ?\{(?P<name>cases|aligned|gathered)\}(?P<body>.*)\\end ?\{(?P=name)\}", re.DOTALL)
_PLAIN_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]*")
_SHORT_WORDS = frozenset(
    (
        "yes",
        "no",
        "odd",
        "even",
        "one",
        "two",
        "six",
        "ten",
        "red",
        "mon",
        "tue",
        "wed",
        "thu",
        "fri",
        "sat",
        "sun",
        "dne",
    )
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])|(?<![\d. ])\d{1,3}(?: \d{3})+(?![\d /])")
_SPELLED_COLON = re.compile(r" ?\\text\{ ?to ?\} ?| to ")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}(?![A-Za-z}])")

# What a congruence gives: 3 \pmod 7, x \equiv 3 \pmod{7}, 10 \bmod 7, 3 (mod 7).
_MODULUS = re.compile(
    r" ?[(]? ?(?:\\[pb]?mod(?![A-Za-z])|\\text\{ ?mod ?\}|(?<![A-Za-z\\])mod(?![A-Za-z])) ?"
    r"(?P<brace>\{)? ?(?P<modulus>[1-9][0-9]{0,30}) ?(?(brace)\}) ?[)]?"
)
_CONGRUENT = re.compile(r"^[A-Za-z](?:_\{\w+\})? ?\\equiv(?![A-Za-z])")
_EITHER_SIGN = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_INTEGER = re.compile(r"-?[0-9]{1,300}")
_DOMAIN = re.compile(r"\(?[a-z](?:_\{\w+\})? ?\\in ?\\mathbb ?\{?[ZNQ]\}?(?:[_^]\{[^{}]*\})?\)?")
# 11:00 and 3:30 pm, which are no ratios.
_TIME = re.compile(r"\d{1,2}:0\d|\d{1,2}:\d\d ?[ap]\.? ?m\.?", re.IGNORECASE)

_NOTHING = frozenset({"nosolution", "nosolutions", "norealsolution", "norealsolutions", "emptyset", "theemptyset"})
_NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)
_NAMED_SETS = {
    "\\mathbb{R}": REALS,
    "\\mathbb{R}^{+}": Items((Scalar("0"), Scalar("\\infty")), "(", ")"),
    "\\mathbb{R}^+": Items((Scalar("0"), Scalar("\\infty")), "(", ")"),
    "\\emptyset": NOTHING,
}
_REALS = frozenset({"allrealnumbers", "allreals", "realnumbers", "therealnumbers", "allrealx"})
_UNDEFINED = frozenset({"dne", "doesnotexist", "undefined", "thelimitdoesnotexist"})


def readings(text: str) -> list[Node]:
    """What a cleaned answer may mean: `3,500` is a number or a list, so it has two readings."""
    merged = _merge_thousands(text)
    return [read(merged), read(text)] if merged != text else [read(text)]


def merge_all_thousands(text: str) -> str:
    """Separators taken out of all numbers of one expression."""
    return _THOUSANDS.sub(lambda match: re.sub("[, ]", "", match.group()), text)


def _merge_thousands(text: str) -> str:
    depth = 0
    start = 0
    pieces = []
    for token in _TOKEN.finditer(text):
        step = _step(token.group())
        if step and depth == (0 if step > 0 else 1):
            piece = text[start : token.start()]
            pieces.append(merge_all_thousands(piece) if depth == 0 else piece)
            start = token.start()
        depth = max(0, depth + step)
    pieces.append(merge_all_thousands(text[start:]) if depth == 0 else text[start:])
    return "".join(pieces)


def read(text: str, depth: int = 0) -> Node:
    """The structure of a cleaned answer. Does not fail: what has no structure is a scalar."""
    text = _from_outward_brackets(text.strip().strip(",;").strip())
    if depth > _MAX_DEPTH or not text:
        return Scalar(text)
    matrix = _MATRIX.fullmatch(text)
    if matrix and _is_one_block(text):
        return _read_matrix(matrix, depth)
    transposed = _TRANSPOSED.fullmatch(text)
    if transposed and _is_one_block(transposed[1].rstrip()):
        return _transposed(read(transposed[1], depth + 1), text)
    multiple = _MULTIPLE.fullmatch(text)
    if multiple:
        return _read_multiple(multiple, depth)
    cases = _CASES.fullmatch(text)
    if cases and "&" not in cases["body"]:
        rows = [row for row in cases["body"].split("\\\\") if row.strip()]
        return Items(tuple(read(row, depth + 1) for row in rows))
    parts, separators = _split(text, _ARROWS)
    if separators and parts[-1].strip():
        return read(parts[-1], depth + 1)
    residues = _read_residues(text)
    if residues is not None:
        return residues
    parts, separators = _split(text, _SEPARATORS)
    if separators:
        # "k in Z" beside an answer explains the letter.
        stated = [part for part in parts if part.strip() and not _DOMAIN.fullmatch(part.strip())]
        if len(stated) == 1:
            domains = [part for part in parts if _DOMAIN.fullmatch(part.strip())]
            return _within(read(stated[0], depth + 1), domains[0] if domains else "")
        items = _flat([read(part, depth + 1) for part in stated or parts if part.strip()])
        return Items(items, connective="\\lor" if "\\lor" in separators else "\\land")
    sides, operators = _split(text, _RELATIONS)
    if operators and all(side.strip() for side in sides):
        return _read_relation(sides, operators, depth)
    parts, operators = _split(text, _SET_OPERATORS)
    if operators and all(part.strip() for part in parts):
        return SetOperation(tuple(read(part, depth + 1) for part in parts), tuple(operators))
    return _read_bracketed(text, depth) or _read_ratio(text) or _read_plain(text, depth)


def _flat(items: Sequence[Node]) -> tuple[Node, ...]:
    """The items of a list or set, where `\\pm 1` is two of them."""
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Items) and not item.left else [item])
    return tuple(flat)


def _step(token: str) -> int:
    if token in _OPENERS or token.startswith("\\begin"):
        return 1
    return -1 if token in _CLOSERS or token.startswith("\\end") else 0


def _split(text: str, separators: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts between separators that stand outside all brackets, and the separators."""
    parts: list[str] = []
    found: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        depth = max(0, depth + _step(token.group()))
        if depth == 0 and token.group() in separators:
            parts.append(text[start : token.start()])
            found.append(token.group())
            start = token.end()
    return [*parts, text[start:]], found


def _from_outward_brackets(text: str) -> str:
    # ]0,1[ is how some countries write the open interval (0,1).
    if re.fullmatch(r"[\[\]][^\[\]]*,[^\[\]]*[\[\]]", text) and (text[0] == "]" or text[-1] == "["):
        return ("(" if text[0] == "]" else "[") + text[1:-1] + (")" if text[-1] == "[" else "]")
    return text


def _read_matrix(matrix: re.Match[str], depth: int) -> Node:
    body = re.sub(r"^ ?\{[lcr| ]*\}", "", matrix["body"]) if matrix["name"] == "array" else matrix["body"]
    rows = []
    for row in _split(body, ("\\\\",))[0]:
        if row.strip():
            rows.append(tuple(read(cell, depth + 1) for cell in _split(row, ("&",))[0]))
    return Matrix(tuple(rows))


def _transposed(node: Node, text: str) -> Node:
    """A matrix with its rows as columns, and a row of numbers as a column."""
    if isinstance(node, Items) and node.is_bracketed:
        return Matrix(tuple((item,) for item in node.items))
    if isinstance(node, Matrix) and len({len(row) for row in node.rows}) == 1:
        return Matrix(tuple(zip(*node.rows)))
    return Scalar(text)


def _read_multiple(multiple: re.Match[str], depth: int) -> Node:
    matrix = read(multiple["matrix"], depth + 1)
    factor = "-1" if multiple["factor"].strip() == "-" else multiple["factor"].strip()
    cells = [cell for row in matrix.rows for cell in row] if isinstance(matrix, Matrix) else []
    if not isinstance(matrix, Matrix) or not all(isinstance(cell, Scalar) for cell in cells):
        return Scalar(multiple.group())
    rows = [
        [Scalar(rf"({factor})\cdot ({cell.text})") for cell in row if isinstance(cell, Scalar)] for row in matrix.rows
    ]
    return Matrix(tuple(tuple(row) for row in rows))


def _read_relation(sides: list[str], operators: list[str], depth: int) -> Node:
    if operators == ["\\in"]:
        return read(sides[1], depth + 1)
    operators = ["=" if operator == "\\approx" else operator for operator in operators]
    return Relation(tuple(side.strip() for side in sides), tuple(operators))


def _read_residues(text: str) -> Node | None:
    """One residue, or several with one modulus behind them: `x \\equiv 3, 5 \\pmod 8`."""
    match = _MODULUS.search(text)
    if match is None or text[match.end() :].strip():
        return None
    values = [value.strip() for value in _split(_CONGRUENT.sub("", text[: match.start()]), _SEPARATORS)[0]]
    if not all(_INTEGER.fullmatch(value) for value in values):
        return None
    modulus = int(match["modulus"])
    items = tuple(Residue(int(value) % modulus, modulus) for value in values)
    return items[0] if len(items) == 1 else Items(items)


def _read_ratio(text: str) -> Ratio | None:
    parts, colons = _split(text, (":",))
    if not colons:
        parts = _SPELLED_COLON.split(text)
    parts = [part.strip() for part in parts]
    # Of numbers and letters: a word and a colon introduce what follows.
    if len(parts) < 2 or not all(parts) or any(_LONG_WORD.search(part) for part in parts):
        return None
    return None if _as_word(text) else Ratio(tuple(parts), is_spelled=not colons)


def _read_bracketed(text: str, depth: int) -> Node | None:
    tokens = [token.group() for token in _TOKEN.finditer(text)]
    left, right = tokens[0], tokens[-1]
    if left not in _OPENERS[:5] or right not in _CLOSERS[:5] or not _is_one_block(text):
        return None
    inner = text[len(left) : -len(right)].strip()
    is_set = left in ("{", "\\{")
    if left == "\\{" and not inner:
        return NOTHING
    if left == "\\{":
        parts, bars = _split(inner, ("|", ":"))
        if len(bars) == 1 and _split(parts[1], _RELATIONS)[1]:
            return _within(read(parts[1], depth + 1), parts[0])
    parts, separators = _split(inner, (",", ";"))
    if separators or left == "\\{":
        items = tuple(read(part, depth + 1) for part in parts)
        if is_set:
            return Items(_flat(items), "{", "}")
        return Items(items, "[" if left == "[" else "(", "]" if right == "]" else ")")
    return read(inner, depth + 1) if left != "\\langle" else None


def _is_one_block(text: str) -> bool:
    tokens = [token.group() for token in _TOKEN.finditer(text)]
    return _first_close(tokens) == len(tokens) - 1


def _within(node: Node, domain: str) -> Node:
    """A condition on a number that is also said to be whole or rational; any other node, as it is."""
    named = re.search(r"\\mathbb ?\{?([ZNQ])\}?(.*)", domain)
    if named is None or not isinstance(node, Relation) or node.is_equation:
        return node
    return SetOperation((node, Scalar(rf"\mathbb{{{named[1]}}}{named[2].strip()}")), ("\\cap",))


def _first_close(tokens: Sequence[str]) -> int:
    depth = 0
    for index, token in enumerate(tokens):
        depth += _step(token)
        if depth <= 0:
            return index
    return -1


def _read_plain(text: str, depth: int) -> Node:
    if _EITHER_SIGN.search(text):
        upper = _EITHER_SIGN.sub(lambda sign: "+" if sign.group() == "\\pm" else "-", text)
        lower = _EITHER_SIGN.sub(lambda sign: "-" if sign.group() == "\\pm" else "+", text)
        return Items((read(upper.lstrip("+ "), depth + 1), read(lower, depth + 1)))
    word = _as_word(text)
    if word is None:
        return _NAMED_SETS.get(text, Scalar(text))
    if word in _NUMBER_WORDS:
        return Scalar(str(_NUMBER_WORDS.index(word)))
    if word in _NOTHING:
        return NOTHING
    if word in _REALS:
        return REALS
    return Word("undefined" if word in _UNDEFINED else word)


def _as_word(text: str) -> str | None:
    time = re.sub(r"\\text ?\{([^{}]*)\}", r"\1", text)
    if _TIME.fullmatch(time):
        return re.sub("[ .]", "", time.lower())
    rest = re.sub(r"\\text ?\{[^{}]*\}", "", text)
    is_words = "\\text" in text and not re.search(r"[A-Za-z0-9\\^_=+]", rest)
    if not is_words:
        plain = _PLAIN_WORDS.fullmatch(text)
        letters = re.sub("[^A-Za-z]", "", text)
        # Up to three letters may be a product of variables.
        is_words = plain is not None and (len(letters) > 3 or letters.lower() in _SHORT_WORDS)
    return re.sub(r"[^a-z0-9]", "", text.replace("\\text", "").lower()) if is_words else None
