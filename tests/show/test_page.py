"""The page of rollouts: what stands in it, that hostile text stays text, and what a browser makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from roll_core.show.dumps import find_dumps, read_dumps
from roll_core.show.page import page
from tests.show.rollouts import HOSTILE, write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
needs_browser = pytest.mark.skipif(not BROWSER, reason="no chromium here: the page is only parsed, not opened")


class Document(HTMLParser):
    """Elements with their attributes, the texts of each, and what stands outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open = tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open, data))

    def handle_comment(self, data: str) -> None:
        self.elements.append(("comment", {}))


@pytest.fixture
def text(tmp_path: Path) -> str:
    found = read_dumps(find_dumps(write_run(tmp_path / "rollouts")), lambda rollout: True, 100)
    assert found.problems == []
    return page(found.rollouts, f"run {HOSTILE}", f"note {HOSTILE}")


def test_hostile_text_adds_no_element_and_no_attribute(text: str) -> None:
    harmless = page([], "run", "note")
    assert [(tag, set(given)) for tag, given in Document(text).elements] == [
        (tag, set(given)) for tag, given in Document(harmless).elements
    ]


def test_everything_that_was_dumped_is_in_the_page(text: str) -> None:
    [data] = [data for tag, data in Document(text).texts if tag == "script" and data.startswith("[")]
    found = json.loads(data)
    assert [(one["kind"], one["step"], one["id"], one["score"]) for one in found] == [
        ("validation", 2, "a", 1.0),
        ("validation", 2, "b", 0.0),
        ("train", 2, "Lake_0_3_7_0", 1.0),
        ("train", 1, "Lake_0_1_7_0", 1.0),
        ("train", 1, "Lake_0_2_7_0", 0.0),
    ]
    assert found[1]["turns"][1] == ["assistant", HOSTILE, 0.0, {}]
    assert found[3]["turns"] == [
        ["environment", f"P_{HOSTILE}", None, {}],
        ["assistant", "<answer>Down</answer>", 0.0, {"x": 1.0}],
        ["environment", "_P", None, {}],
        ["assistant", f"<answer>{HOSTILE}</answer>", 1.0, {}],
    ]
    assert found[3]["tokens"] == [["Do", 0.5], ["wn", -1.0], [HOSTILE, None]]


def test_the_page_needs_nothing_from_outside_and_may_load_nothing(text: str) -> None:
    elements = Document(text).elements
    assert [given for _, given in elements if {"src", "href", "action", "style", "onload"} & set(given)] == []
    [policy] = [given["content"] for _, given in elements if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    assert not re.search(r"https?://|@import|url\(", text)


def test_the_script_writes_texts_only() -> None:
    script = page([], "run").rpartition("<script>")[2]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", script)


@needs_browser
def test_a_browser_shows_turns_rewards_and_tokens_and_runs_no_script_of_a_rollout(text: str, tmp_path: Path) -> None:
    document = opened(text, tmp_path)
    assert "taken" not in titles(document)[0][:5] and titles(document)[0].startswith("run ")
    assert [tag for tag, given in document.elements if tag == "img" or "onerror" in given] == []
    shown = [data for _, data in document.texts]
    assert "5 of 5 rollouts, mean score 0.6" in shown
    assert [data for data in shown if data.startswith("reward ")].count("reward +1") == 3
    assert "tokens: 3, 2 with advantages from -1 to +0.5" in shown
    # Line separators and escapes of terminals included; a serialised document has some of them as references.
    assert any(HOSTILE.replace("\x07", "") in data.replace("\x07", "") for data in shown)


@needs_browser
def test_a_browser_colours_tokens_by_their_advantages(text: str, tmp_path: Path) -> None:
    tokens = [given for _, given in opened(text, tmp_path, "parts=open").elements if given.get("class") == "token"]
    assert [(given.get("title"), given.get("style")) for given in tokens] == [
        ("advantage +0.5", "background-color: rgba(0, 160, 70, 0.3);"),
        ("advantage -1", "background-color: rgba(220, 40, 50, 0.6);"),
        (None, None),
        ("advantage -0.25", "background-color: rgba(220, 40, 50, 0.6);"),
    ]


@needs_browser
@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ("step=1", "2 of 5 rollouts, mean score 0.5"),
        ("min=0.5", "3 of 5 rollouts, mean score 1"),
        ("max=0.5&kind=train", "1 of 5 rollouts, mean score 0"),
        ("success=true", "2 of 5 rollouts, mean score 1"),
        ("text=SOLVE", "2 of 5 rollouts, mean score 0.5"),
        ("tag=Lake&sort=lowest+score", "3 of 5 rollouts, mean score 0.6667"),
        ("step=9", "5 of 5 rollouts, mean score 0.6"),
    ],
)
def test_a_browser_shows_what_the_filters_of_the_address_leave(
    text: str, tmp_path: Path, filters: str, said: str
) -> None:
    assert said in [data for _, data in opened(text, tmp_path, filters).texts]


def titles(document: Document) -> list[str]:
    return [data for tag, data in document.texts if tag == "title"]


def opened(text: str, folder: Path, filters: str = "") -> Document:
    """The document that a browser makes of the page, once its script has run."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=2000", "--dump-dom", f"file://{file}#{filters}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr[-2000:]
    return Document(done.stdout)
