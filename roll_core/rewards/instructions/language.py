"""The language of a text, told without chance: by its script where that says it, else by py3langid's model.

A statistical model is only asked to choose among languages that share the script, because a script that a language
does not use settles the question. Only the first characters of long texts are looked at.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import cache
from typing import Any

from roll_core.rewards.instructions.relations import BadInstruction

_LOOKED_AT = 20_000
_FEW_LETTERS = 24
"""With fewer letters the model guesses; such a text is in every language that it may well be in."""
_MAY_WELL_BE = 12.0
"""Natural logarithm of how much likelier another language may be. Greetings and one-word answers in a dozen languages
were within 5 of the likeliest, and the wrong language of a short sentence beyond 13."""

SCRIPTS: dict[str, tuple[str, ...]] = {
    "LATIN": (
        *("en", "es", "pt", "fr", "de", "it", "fi", "sw", "vi", "pl", "nl", "sv", "no", "da", "tr", "id", "ro", "cs"),
        *("sk", "hu", "hr", "sl", "et", "lv", "lt", "ca", "gl", "eu", "sq", "is", "ga", "cy", "af", "ms", "tl"),
    ),
    "CYRILLIC": ("ru", "uk", "bg", "sr", "be", "mk", "kk", "mn"),
    "ARABIC": ("ar", "fa", "ur", "ps", "ug"),
    "DEVANAGARI": ("hi", "mr", "ne"),
    "HEBREW": ("he",),
    "GREEK": ("el",),
    "BENGALI": ("bn",),
    "THAI": ("th",),
    "TAMIL": ("ta",),
    "TELUGU": ("te",),
    "KANNADA": ("kn",),
    "MALAYALAM": ("ml",),
    "GUJARATI": ("gu",),
    "GURMUKHI": ("pa",),
    "HANGUL": ("ko",),
    "JAPANESE": ("ja",),
    "HAN": ("zh",),
    "ARMENIAN": ("hy",),
    "GEORGIAN": ("ka",),
}
"""Languages by the script they are written in, by their ISO 639-1 codes."""
_SCRIPT_OF = {language: script for script, languages in SCRIPTS.items() for language in languages}
_ALIASES = {"zh-cn": "zh", "zh-tw": "zh", "iw": "he", "nb": "no", "nn": "no"}
_KANA = ("HIRAGANA", "KATAKANA")


def known_language(code: object) -> str:
    """A language's code as used here.

    Raises:
        BadInstruction: no such language can be told.
    """
    name = str(code).strip().lower()
    name = _ALIASES.get(name, name)
    if name not in _SCRIPT_OF:
        raise BadInstruction(f"no language {code!r} can be told; there are: {', '.join(sorted(_SCRIPT_OF))}")
    return name


def is_in_language(text: str, code: str) -> bool:
    """Whether most of a text is in a language. A text without letters is in none."""
    language = known_language(code)
    script, num_letters = main_script(text)
    if script != _SCRIPT_OF[language]:
        return False
    candidates = SCRIPTS[script]
    if len(candidates) == 1:
        return True
    if num_letters < _FEW_LETTERS:
        scores = _likelihoods(text, candidates)
        return scores[language] >= max(scores.values()) - _MAY_WELL_BE
    return most_likely(text, candidates) == language


def main_script(text: str) -> tuple[str, int]:
    """The script of most letters ("" where there are none), and how many letters are of it."""
    counts: Counter[str] = Counter()
    for letter, count in Counter(text[:_LOOKED_AT]).items():
        if letter.isalpha():
            counts[_script(letter)] += count
    if any(counts[kana] for kana in _KANA):
        # Japanese mixes three scripts; a single kana in a Chinese text is a quotation.
        kana = sum(counts.pop(name, 0) for name in _KANA)
        if kana * 10 >= counts["HAN"]:
            counts["JAPANESE"] = kana + counts.pop("HAN", 0)
    (script, number), *_ = counts.most_common(1) or [("", 0)]
    return script, number


def _script(letter: str) -> str:
    name = unicodedata.name(letter, "")
    first = name.split(" ", 1)[0]
    return "HAN" if first == "CJK" else first


def most_likely(text: str, candidates: tuple[str, ...]) -> str:
    """The likeliest of some languages, by py3langid's model.

    Raises:
        ImportError: py3langid is not installed.
    """
    return max(_likelihoods(text, candidates).items(), key=lambda item: item[1])[0]


def _likelihoods(text: str, candidates: tuple[str, ...]) -> dict[str, float]:
    """The logarithm of each candidate's likelihood, but for a constant."""
    # The model learned from ordinary text; capitals throughout are another language to it.
    plain = text[:_LOOKED_AT].lower().encode("utf-8", "replace").decode()
    ranked = {language: float(likelihood) for language, likelihood in _identifier().rank(plain)}
    return {language: ranked.get(language, float("-inf")) for language in candidates}


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    # A model of its own: py3langid's module-level one can be changed by anyone in the process.
    return LanguageIdentifier.from_model_file(MODEL_FILE)


KNOWN_TEXTS = {
    "en": "The committee will meet again on Thursday to discuss the results of the survey.",
    "fr": "Le comite se reunira de nouveau jeudi pour discuter des resultats de cette enquete.",
    "de": "Der Ausschuss wird am Donnerstag wieder zusammenkommen, um die Ergebnisse zu besprechen.",
    "es": "El comite se reunira de nuevo el jueves para hablar de los resultados de la encuesta.",
    "it": "La commissione si riunisce di nuovo nella giornata di martedi per discutere i risultati.",
}
"""Texts whose language an install must tell before a run may trust it."""


def language_problems() -> list[str]:
    """Sentences about an install that cannot tell languages."""
    try:
        found = {code: most_likely(text, SCRIPTS["LATIN"]) for code, text in KNOWN_TEXTS.items()}
    except ImportError as error:
        return [
            f"ifeval tells languages with py3langid, which cannot be imported: {error}",
            "try: pip install 'roll-core[ifeval]'",
        ]
    return [f"py3langid takes a text in '{code}' for '{other}'" for code, other in found.items() if other != code]
