r"""Many ways to write an answer, brought to one: Unicode, LaTeX layout, wrappers, malformed commands.

After `clean`, relations are `= != < <= > >=`, multiplication is `\cdot`, percent is `%`, a dollar sign is the generic
currency sign, words are `\text{...}`, `and` and `or` are `\land` and `\lor`, and fractions and roots have braces.
"""

from __future__ import annotations

import re
import unicodedata

# Generic currency sign: a dollar sign that is meant, as opposed to one that delimits mathematics.
DOLLAR = "\u00a4"

# Keys are code points, because several of these characters look like ASCII ones.
_SYMBOLS = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(range(0x2010, 0x2016), "-"),
    **dict.fromkeys([0x2212, 0xFE63, 0x2796], "-"),
    **dict.fromkeys([0x00D7, 0x2A2F, 0x2715], r" \cdot "),
    **dict.fromkeys([0x00B7, 0x22C5, 0x2219, 0x2022, 0x2217], r" \cdot "),
    **dict.fromkeys([0x00F7, 0x2215, 0x2044], "/"),
    **dict.fromkeys([0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x00AD], None),
    **dict.fromkeys([0x2264, 0x2A7D], "<="),
    **dict.fromkeys([0x2265, 0x2A7E], ">="),
    0x2260: "!=",
    0x2248: r"\approx ",
    0x221E: r"\infty ",
    0x00B1: r"\pm ",
    0x2213: r"\mp ",
    0x00B0: r"^\circ ",
    0x222A: r"\cup ",
    0x2229: r"\cap ",
    0x2208: r"\in ",
    0x2205: r"\emptyset ",
    0x211D: r"\mathbb{R}",
    0x2216: r"\setminus ",
    0x27E8: r"\langle ",
    0x27E9: r"\rangle ",
    0x2032: "'",
    0x2033: "''",
    0x2236: ":",
    0x2019: "'",
}
_SUPERSCRIPTS = {
    **{0x2070 + digit: str(digit) for digit in (0, 4, 5, 6, 7, 8, 9)},
    **{0x00B9: "1", 0x00B2: "2", 0x00B3: "3", 0x207A: "+", 0x207B: "-", 0x207F: "n"},
}
_SUBSCRIPTS = {0x2080 + digit: str(digit) for digit in range(10)}
_RAISED = re.compile("[" + "".join(map(chr, _SUPERSCRIPTS)) + "]+")
_LOWERED = re.compile("[" + "".join(map(chr, _SUBSCRIPTS)) + "]+")
_ROOT = re.compile("\u221a ?(\\d+(?:\\.\\d+)?|[A-Za-z]|\\([^()]*\\))")

_LAYOUT = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|big|Big|bigg|Bigg|displaystyle|textstyle|limits|nolimits|mathstrut"
    r"|rm|bf|it|large|Large|normalsize)(?![A-Za-z])\.?"
)
_SPACE = re.compile(
    r"(?<!\\)\\(?:[,;:> ]|(?:quad|qquad|thinspace|enspace|hfill)(?![A-Za-z]))|~|\\hspace\s?\{[^{}]*\}|[\s\x00-\x1f]+"
)
_WRAPPER = re.compile(
    r"\\(text|textbf|textit|textrm|textsf|texttt|textnormal|mathrm|mathbf|mathit|mathsf|mathnormal|mbox|hbox|emph"
    r"|boldsymbol|bm|operatorname|underline|boxed|fbox) ?\*? ?\{([^{}]*)\}"
)
_COLOUR = re.compile(r"\\(?:textcolor|color) ?(?:\[[^\[\]]*\] ?)?\{[^{}]*\}")
_ALIGNED = re.compile(
    r"\\begin ?\{(aligned|align\*?|gathered|split)\}(?P<body>(?:(?!\\begin).)*)\\end ?\{\1\}", re.DOTALL
)
_WRAPPED_WORD = re.compile(r"\\(?:text[a-z]{0,6}|mathrm|mathbf|mbox|boldsymbol|boxed|fbox) ?\{ ?(\x00\{[^{}]*\}) ?\}")
_FUNCTIONS = frozenset(
    (
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "log",
        "ln",
        "exp",
        "max",
        "min",
        "gcd",
        "lcm",
        "det",
    )
)
# Letters are variables; set upright behind a value, these are units. Elsewhere upright letters stay what they are.
_UPRIGHT = ("text", "textrm", "mathrm", "mbox", "hbox", "textnormal")
_UNIT_LETTERS = frozenset("mgshlLNJVWAKCF")

# Several options.
_LETTERS = re.compile(r"[A-Z](?:(?:,| and|, and| or) [A-Z])+")
_UNIT_FRACTION = re.compile(
    r"\\[dt]?frac ?\{ ?\\(?:text|mathrm) ?\{(?P<over>[^{}]*)\} ?\} ?"
    r"\{ ?\\(?:text|mathrm) ?\{(?P<under>[^{}]*)\}(?P<power> ?\^ ?\{?\d\}?)? ?\}"
)

_REPLACEMENTS = [
    (re.compile(r"^ ?(?:\\text\{ ?(?:negative|minus) ?\}|(?:negative|minus) )(?= ?[\d\\])", re.IGNORECASE), "-"),
    (re.compile(r"\{([^{}]*?)\\choose(?![A-Za-z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\{([^{}]*?)\\over(?![A-Za-z])([^{}]*)\}"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"\\(?:leqslant|leqq|leq|le)(?![A-Za-z])"), "<="),
    (re.compile(r"\\(?:geqslant|geqq|geq|ge)(?![A-Za-z])"), ">="),
    (re.compile(r"\\(?:neq|ne)(?![A-Za-z])|\\not ?="), "!="),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
    (re.compile(r"\\(?:times|cdotp|ast)(?![A-Za-z])|\*"), r"\\cdot "),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\colon(?![A-Za-z])|\\text\{ ?: ?\}"), ":"),
    (re.compile(r"\^ ?(?:\{ ?\\prime ?\}|\\prime(?![A-Za-z]))"), "'"),
    (re.compile(r"\^ ?\{ ?\\prime ?\\prime ?\}"), "''"),
    (re.compile(r"\\(?:infin|infty)(?![A-Za-z])|\\text\{ ?infinity ?\}", re.IGNORECASE), r"\\infty "),
    (re.compile(r"\+ ?\\infty"), r"\\infty"),
    (re.compile(r"\\lg(?![A-Za-z])"), r"\\log_{10} "),
    (re.compile(r"^ ?\\text\{[^{}]{0,40}\banswer(?: is)?:? ?([-+]?\d[^{}]*)\}", re.IGNORECASE), r"\1"),
    (re.compile(r"^ ?(?:\\text\{[^{}]*(?:answer[^{}]*|:) ?\}|\\approx(?![A-Za-z]))", re.IGNORECASE), ""),
    (re.compile(r"\\mathbb ?\{? ?R ?\}?|\\(?:R|Reals|reals)(?![A-Za-z])"), r"\\mathbb{R}"),
    (re.compile(r"\\(?:varnothing|emptyset)(?![A-Za-z])"), r"\\emptyset "),
    (re.compile(r"\\(?:lbrace)(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\(?:rbrace)(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\(?:vee|lor)(?![A-Za-z])|\\text\{ ?or ?\}|(?<![A-Za-z\\])or(?![A-Za-z])"), r"\\lor "),
    (re.compile(r"\\(?:wedge|land)(?![A-Za-z])|\\text\{,? ?and ?\}|(?<![A-Za-z\\])and(?![A-Za-z])"), r"\\land "),
    (
        re.compile(r"\^ ?(?:\{ ?\\circ ?\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z])|\\text\{ ?deg(?:rees?)? ?\}"),
        r"^\\circ ",
    ),
    (re.compile(r"(?<=\d) ?degrees?(?![A-Za-z])"), r"^\\circ "),
    (re.compile(r"\\%|\\text\{ ?(?:percent|%) ?\}|(?<=\d) ?percent(?![A-Za-z])"), "%"),
    (re.compile(r"\{,\}|\\text\{,\}"), ","),
    (re.compile(r"\\lvert|\\rvert|\\vert|\\mid(?![A-Za-z])"), "|"),
    (re.compile(r"\\cdot(?![A-Za-z]) ?"), r"\\cdot "),
]
# LaTeX takes the next token as an argument where no brace follows: \frac12, \sqrt2, x^2, 10^-3.
# A line break at the end of LaTeX, and the full stop of a sentence.
_LINE_END = re.compile(r"(?:\\\\|[.,;: ])+$")
_NUM_ARGUMENTS = {"\\frac": 2, "\\binom": 2, "\\sqrt": 1}
_TOKEN = re.compile(r"\{|\\[A-Za-z]+|[0-9A-Za-z]")
_BARE_SUPERSCRIPT = re.compile(r"\^ ?(-? ?\d+|[A-Za-z])")
_BARE_SUBSCRIPT = re.compile(r"_ ?(\d+|[A-Za-z])")


def clean(text: str) -> str:
    """The text of an answer in one notation. Does not fail: what it does not know, it leaves."""
    if not text.isascii():
        text = _to_ascii(text)
    text = text.replace("\\$", DOLLAR).replace("\\!", "")
    text = re.sub(r"^([-+]? ?)\$(?=[\d.]+$)", rf"\1{DOLLAR}", text.strip())
    text = re.sub(r"(?<!\\)\\[()\[\]]|\$", " ", text)
    text = _SPACE.sub(" ", _LAYOUT.sub(" ", _COLOUR.sub("", text)))
    text = _ALIGNED.sub(_without_columns, text)
    text = _unwrap(_UNIT_FRACTION.sub(r"\\text{\g<over>/\g<under>}\g<power>", text))
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = _brace_arguments(text)
    text = _BARE_SUPERSCRIPT.sub(lambda match: "^{" + match.group(1).replace(" ", "") + "}", text)
    text = _BARE_SUBSCRIPT.sub(r"_{\1}", text)
    text = re.sub(r" +", " ", text)
    return _LINE_END.sub("", text).lstrip("=:, ")


def _without_columns(match: re.Match[str]) -> str:
    """Lines of aligned formulas: one line is itself, several stay a list."""
    body = re.sub(r"(?<!\\)&", " ", match["body"]).strip().removesuffix("\\\\").strip()
    return rf"\begin{{aligned}}{body}\end{{aligned}}" if "\\\\" in body else body


def _to_ascii(text: str) -> str:
    text = _RAISED.sub(lambda match: "^{" + match.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda match: "_{" + match.group().translate(_SUBSCRIPTS) + "}", text)
    text = _ROOT.sub(r"\\sqrt{\1}", text.translate(_SYMBOLS))
    return "".join(character if character.isascii() else _character(character) for character in text)


def _character(character: str) -> str:
    if character == "\u03c0":
        return r"\pi "
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if character.isspace() or unicodedata.category(character) in ("Zs", "Cc"):
        return " "
    name = unicodedata.name(character, "")
    if name.startswith("GREEK SMALL LETTER ") and name.count(" ") == 3:
        return "\\" + name.rpartition(" ")[2].lower() + " "
    if name.startswith("VULGAR FRACTION "):
        numerator, _, denominator = unicodedata.normalize("NFKC", character).partition("\u2044")
        return f" \\frac{{{numerator}}}{{{denominator}}}"
    return character


def _unwrap(text: str) -> str:
    """Take numbers, letters and function names out of text commands; what stays is a word, as `\\text{word}`."""
    for _ in range(4):
        replaced = _WRAPPED_WORD.sub(r"\1", _WRAPPER.sub(_unwrapped, text))
        if replaced == text:
            break
        text = replaced
    return text.replace("\x00", "\\text")


def _unwrapped(match: re.Match[str]) -> str:
    content = match.group(2)
    word = content.strip()
    # Minutes are not the minimum: names that are also words need an argument.
    argument = match.string[match.end() :].lstrip()[:1]
    if word in _FUNCTIONS and (word not in ("min", "max", "det", "tan", "sec") or argument in ("(", "\\", "_", "{")):
        return f"\\{word} "
    if match.group(1) in _UPRIGHT and word in _UNIT_LETTERS and _stands_as_unit(match):
        return f"\x00{{{content}}}"
    is_mathematics = (
        _LETTERS.fullmatch(word)
        or re.match(r"[-+\xa4]? ?\d", word)
        or re.search(r"[=\\\x00]", word)
        or not re.search(r"[A-Za-z]{2}", word)
    )
    if match.group(1) in ("boxed", "fbox") or is_mathematics:
        return content
    # The mark keeps the result from being taken apart again; `_unwrap` turns it into a command.
    return f"\x00{{{content}}}"


def _stands_as_unit(match: re.Match[str]) -> bool:
    """Whether an upright letter stands where units do: behind a value, with at most a power or other units after it."""
    before, after = match.string[: match.start()].rstrip(), match.string[match.end() :].lstrip()
    if re.search(r"(?:\\circ|\\degree) ?\}?$", before):
        return False  # The letter of a scale of temperature.
    follows = re.match(r"$|[\^/}.,;:]|\\(?:text|mathrm|cdot|land|lor)", after)
    return follows is not None and re.search(r"[\w)}]$", before) is not None


def _brace_arguments(text: str) -> str:
    for command, count in _NUM_ARGUMENTS.items():
        first, *parts = text.split(command)
        text = first + "".join(command + _with_braces(part, count) for part in parts)
    return text


def _with_braces(rest: str, count: int) -> str:
    taken = ""
    if rest.startswith("[") and "]" in rest:
        end = rest.index("]") + 1
        taken, rest = rest[:end], rest[end:]
    for _ in range(count):
        rest = rest.lstrip()
        match = _TOKEN.match(rest)
        if match is None:
            break
        end = match.end()
        if match.group() == "{":
            end = _closing(rest)
            taken += rest[:end]
        else:
            # The argument may be a command with arguments of its own: \frac\sqrt{3}2.
            for _ in range(_NUM_ARGUMENTS.get(match.group(), 0)):
                end += _closing(rest[end:]) if rest[end:].startswith("{") else 0
            taken += "{" + rest[:end] + "}"
        rest = rest[end:]
    return taken + rest


def _closing(text: str) -> int:
    """Index after the brace that closes the one `text` starts with; the end where none does."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return index + 1
    return len(text)
