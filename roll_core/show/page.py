"""Rollouts as one HTML page that needs nothing else: no server, no network, no other file.

What models and environments wrote is hostile text. It stands in the page as JSON in which nothing can end the element
around it, its script puts it into the document as text only, and the page's policy lets a browser run no other script
and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from roll_core.show.records import Rollout

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><p>{note}</p></header>
<form id="filters" aria-label="filters"></form>
<p id="count" role="status"></p>
<main id="rollouts"></main>
<button id="more" type="button" hidden>show more</button>
<noscript><p>This page shows its rollouts with a script of its own, and scripts are off.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(rollouts: Sequence[Rollout], title: str, note: str = "") -> str:
    """The page.

    Args:
        title: what is shown, such as the folder's name.
        note: a sentence under the title, such as what was left out.
    """
    style, script = _resource("page.css"), _resource("page.js")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'"
    return _PAGE.format(
        policy=policy,
        title=html.escape(title),
        note=html.escape(note),
        style=style,
        script=script,
        data=_as_json([_as_data(rollout) for rollout in rollouts]),
    )


def _as_data(rollout: Rollout) -> dict[str, Any]:
    return {
        "kind": rollout.kind,
        "step": rollout.step,
        "id": rollout.id,
        "group": rollout.group,
        "tag": rollout.tag,
        "score": rollout.score,
        "success": rollout.is_success,
        "end": rollout.end,
        "prompt": rollout.prompt,
        "turns": [[turn.role, turn.text, turn.reward, dict(turn.metrics)] for turn in rollout.turns],
        "metrics": dict(rollout.metrics),
        "tokens": [[token.text, token.advantage] for token in rollout.tokens],
    }


def _as_json(value: object) -> str:
    """JSON in ASCII that holds no character with a meaning in HTML."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _resource(name: str) -> str:
    return (resources.files("roll_core.show") / name).read_text(encoding="utf-8")
