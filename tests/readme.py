"""What a README holds, as its tests need it: blocks, names in code font, links, tables, commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE_BEFORE = re.compile(r"`([\w./-]+)`:\n\n$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the file it stands for, if the line before names one."""

    language: str
    text: str
    file: str = ""


@dataclass(frozen=True)
class Readme:
    """One README of the repository."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(REPOSITORY))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for match in _FENCE.finditer(self.text):
            named = _FILE_BEFORE.search(self.text[: match.start()])
            found.append(Block(match[1], match[2], named[1] if named else ""))
        return found

    @cached_property
    def prose(self) -> str:
        """The text without its blocks."""
        return _FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """What stands in code font outside blocks."""
        return _SPAN.findall(self.prose)

    @property
    def links(self) -> list[str]:
        """Where links lead, those to other sites left out."""
        return [link for link in _LINK.findall(self.prose) if "://" not in link]

    @property
    def headings(self) -> list[str]:
        return [line.lstrip("#").strip() for line in self.prose.splitlines() if line.startswith("#")]

    def of(self, language: str) -> list[Block]:
        return [block for block in self.blocks if block.language == language]

    def table(self, before: str) -> list[list[str]]:
        """Cells of the first table after a text, row by row, without the heading."""
        lines = self.text[self.text.index(before) + len(before) :].splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("|"))
        rows = []
        for line in lines[first + 2 :]:
            if not line.startswith("|"):
                break
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        return rows

    def commands(self) -> list[list[str]]:
        """Commands of the shell blocks as words, and those in code font that have an argument."""
        lines = [line for block in self.of("bash") for line in block.text.replace("\\\n", " ").splitlines()]
        lines += [span for span in self.spans if re.match(r"(roll|make|python|pip) \S", span)]
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def names_in(cell: str) -> list[str]:
    """What stands in code font in a cell."""
    return _SPAN.findall(cell)


def readmes() -> list[Readme]:
    """Every page, the first one first."""
    folders = [REPOSITORY, *(REPOSITORY / name for name in ("roll_core", "plugins", "examples", "benchmarks"))]
    inner = [path for folder in folders[2:] for path in sorted(folder.glob("*/README.md"))]
    inner.append(REPOSITORY / "roll_core" / "rewards" / "README.md")
    pages = [*(folder / "README.md" for folder in folders), REPOSITORY / "GUIDE.md", *inner]
    return [Readme(path) for path in pages if path.is_file()]


FIRST, CORE, PLUGINS = (Readme(REPOSITORY / folder / "README.md") for folder in ("", "roll_core", "plugins"))


@cache
def code_words() -> frozenset[str]:
    """Every word of the code, and of the samples that tests run. Tests are left out: they hold misspelt names."""
    files = [REPOSITORY / name for name in ("Makefile", "constraints.txt", "pyproject.toml")]
    for folder in ("roll_core", "plugins", "examples", "benchmarks"):
        paths = sorted((REPOSITORY / folder).rglob("*"))
        files += [
            path for path in paths if path.suffix in (".py", ".yaml", ".toml", ".sh") and "tests" not in path.parts
        ]
    texts = [path.read_text(encoding="utf-8") for path in files]
    texts += [path.stem for path in files]
    # The tutorial for plugins renames the template.
    template = [path.read_text(encoding="utf-8") for path in files if "plugin_template" in path.parts]
    texts += [
        text.replace("demo", "pretend").replace("Demo", "Pretend").replace("DEMO", "PRETEND") for text in template
    ]
    return frozenset(re.findall(r"\w+", "\n".join(texts)))
