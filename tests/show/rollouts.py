"""Dumps of a small run, hostile text among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    "<!-- ]]> &lt;b&gt; {data} %s \u2028\u2029 \x1b[31mred\x07 \u202edlrow\u202c <answer>1</answer>"
)


def episode(number: int, score: float, text: str = "go") -> dict[str, Any]:
    return {
        "traj_id": f"Lake_0_{number}_7_0",
        "traj_group_id": f"Lake_0_{number}_7",
        "tag": "Lake",
        "seed": 7,
        "score": score,
        "success": score > 0,
        "end": "terminated",
        "metrics": {"action_is_valid": 0.5},
        "prompt": f"<|im_start|>system\n{text}",
        "turns": [
            {"observation": f"P_{text}", "answer": "<answer>Down</answer>", "reward": 0.0, "metrics": {"x": 1.0}},
            {"observation": "_P", "answer": f"<answer>{text}</answer>", "reward": score, "metrics": {}},
        ],
    }


def row(number: int, turn: int, tokens: list[str], advantages: list[float | None]) -> dict[str, Any]:
    given = {"id": f"Lake_0_{number}_7_0_{turn}", "tag": "Lake", "prompt": "p", "response": "r", "score": 1.0}
    return given | {"group": 0, "status": "ok", "reason": "", "tokens": tokens, "advantages": advantages}


def answer(name: str, score: float, text: str = "3x = 9") -> dict[str, Any]:
    given = {"id": name, "tag": "math_rule", "domain": "math_rule", "group": 4, "prompt": "Solve 3x + 5 = 14"}
    return given | {"response": text, "score": score, "status": "ok", "reason": "no boxed answer"}


def write(folder: Path, name: str, *rows: dict[str, Any] | str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (one if isinstance(one, str) else json.dumps(one) for one in rows)
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder / name


def write_run(folder: Path) -> Path:
    """Two steps with episodes and their rows, and a validation with answers."""
    tokens = row(1, 0, ["Do", "wn", HOSTILE], [0.5, -1.0, None])
    write(folder, "episodes-000001.jsonl", episode(1, 1.0, HOSTILE), episode(2, 0.0))
    write(folder, "step-000001.jsonl", tokens, row(2, 0, ["Up"], [-0.25]))
    write(folder, "episodes-000002.jsonl", episode(3, 1.0))
    write(folder, "val-000002.jsonl", answer("a", 1.0), answer("b", 0.0, HOSTILE))
    return folder
