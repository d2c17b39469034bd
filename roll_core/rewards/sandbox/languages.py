"""Languages other than Python: usable where this machine has their tool."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

PYTHON = frozenset({"", "python", "python3", "py", "py3"})


@dataclass(frozen=True)
class Language:
    """How a program is made and run in its home. Compiled ones leave a file `program`."""

    name: str
    spellings: frozenset[str]
    file: str
    compile: tuple[str, ...]
    run: tuple[str, ...]

    @property
    def tool(self) -> str | None:
        """Where its tool is; None where this machine has none."""
        return shutil.which((self.compile or self.run)[0], path="/usr/local/bin:/usr/bin:/bin")


LANGUAGES = (
    Language(
        "C++",
        frozenset({"cpp", "c++", "cc"}),
        "program.cpp",
        ("g++", "-O1", "-o", "program", "program.cpp"),
        ("./program",),
    ),
    Language("C", frozenset({"c"}), "program.c", ("gcc", "-O1", "-o", "program", "program.c", "-lm"), ("./program",)),
    Language("JavaScript", frozenset({"javascript", "js", "node"}), "program.js", (), ("node", "program.js")),
    Language("Ruby", frozenset({"ruby", "rb"}), "program.rb", (), ("ruby", "program.rb")),
    Language("Perl", frozenset({"perl", "pl"}), "program.pl", (), ("perl", "program.pl")),
    Language("Bash", frozenset({"bash", "sh", "shell"}), "program.sh", (), ("bash", "program.sh")),
    Language("Java", frozenset({"java"}), "Main.java", (), ("java", "Main.java")),
    Language("Go", frozenset({"go", "golang"}), "program.go", (), ("go", "run", "program.go")),
)


def language_of(spelling: str) -> Language | None:
    """A language other than Python by what a fence names."""
    return next((language for language in LANGUAGES if spelling in language.spellings), None)
