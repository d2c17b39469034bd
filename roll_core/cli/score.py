"""`roll score`: what a reward says about responses in a file, so that it can be tried before a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from roll_core.rewards.base import RewardSample
    from roll_core.rewards.pool import RewardPool

_ROWS_AT_ONCE = 512
_COLUMNS = ("id", "prompt", "response", "ground_truth", "tag")


@dataclass(frozen=True)
class Unusable:
    """A row that is no sample: the number of its line, where it is, and why."""

    id: str
    where: str
    problem: str


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("score")(score)


def score(
    file: Annotated[Path, typer.Argument(help="JSONL rows with `response`; also id, prompt, ground_truth, tag.")],
    reward: Annotated[str, typer.Option(help="A built-in name, package.module:name, or file.py:name.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that score.", show_default="2, or the reward's")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0.01, help="Seconds for one row.", show_default="5, or the reward's")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the reward.")] = None,
) -> None:
    """Print {"id", "score", "status", "reason"} for each row, as JSON lines; a summary goes to stderr.

    A row that cannot be read has status "unusable", and the number of its line for an id.

    Exits 0 when every row has a verdict, right or wrong; 1 when rows were unusable or had none; 2 when nothing could
    be scored because of the file, the reward or its options.
    """
    from roll_core.errors import RollError
    from roll_core.rewards.base import Reward
    from roll_core.rewards.builtin import builtin_class
    from roll_core.rewards.pool import RewardPool
    from roll_core.rewards.worker import DEADLINE_S

    try:
        if not file.is_file():
            raise RollError(f"no file '{file}'\n  looked at: {file.resolve()}")
        wishes = builtin_class(reward) or Reward
        workers = workers or max(2, wishes.num_processes)
        deadline = deadline or wishes.deadline_s or DEADLINE_S
        with RewardPool(reward, workers, deadline, options=_options(option or [])) as pool:
            pool.start()
            problems = pool.self_test()
            if problems:
                raise RollError("\n".join([f"reward '{reward}' fails its self-test here", *problems]))
            tally = _score_file(file, pool)
        if not tally:
            raise RollError(f"'{file}' holds no row\n  try: a file with a JSON object on each line")
    except RollError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    _print_summary(tally)
    if any(count for name, count in tally.items() if name not in ("ok", "right")):
        raise typer.Exit(1)


def _options(pairs: list[str]) -> dict[str, Any]:
    import yaml

    from roll_core.errors import RollError

    options = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.isidentifier():
            raise RollError(f"--option {pair!r} is not KEY=VALUE")
        try:
            options[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise RollError(f"--option {name}: {value!r} cannot be read: {error}") from error
    return options


def _score_file(file: Path, pool: RewardPool) -> Counter[str]:
    tally: Counter[str] = Counter()
    batch: list[RewardSample | Unusable] = []
    for sample in _read_samples(file):
        batch.append(sample)
        if len(batch) == _ROWS_AT_ONCE:
            _score_batch(batch, pool, tally)
            batch = []
    _score_batch(batch, pool, tally)
    return tally


def _score_batch(rows: list[RewardSample | Unusable], pool: RewardPool, tally: Counter[str]) -> None:
    """One line for each row, in their order."""
    scores = iter(pool.score_many([row for row in rows if not isinstance(row, Unusable)]))
    for row in rows:
        if isinstance(row, Unusable):
            print(f"{row.where}: {row.problem}", file=sys.stderr)
            print(_as_line(row.id, 0.0, "unusable", row.problem))
            tally["unusable"] += 1
            continue
        one = next(scores)
        print(_as_line(row.id, one.score, one.status.value, one.reason))
        tally[one.status.value] += 1
        tally["right"] += one.score == 1.0
    sys.stdout.flush()


def _as_line(row_id: str, score: float, status: str, reason: str) -> str:
    import json

    return json.dumps({"id": row_id, "score": score, "status": status, "reason": reason})


def _read_samples(file: Path) -> Iterator[RewardSample | Unusable]:
    """All rows; those that are no sample with what is wrong with them."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield _read_sample(line.removeprefix(b"\xef\xbb\xbf"), number)
            except ValueError as error:
                yield Unusable(str(number), f"{file}:{number}", str(error))


def _read_sample(line: bytes, number: int) -> RewardSample:
    import json

    from roll_core.rewards.base import RewardSample

    try:
        row = json.loads(line)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object but {type(row).__name__}")
    response = row.get("response")
    if not isinstance(response, str):
        found = "is missing" if "response" not in row else f"is {type(response).__name__}, not text"
        raise ValueError(f"'response' {found}; the row has: {', '.join(row) or 'nothing'}")
    texts = {name: _text(row, name) for name in ("id", "prompt", "ground_truth", "tag")}
    others = {name: value for name, value in row.items() if name not in _COLUMNS}
    return RewardSample(
        id=texts["id"] or str(number),
        prompt=texts["prompt"],
        response=response,
        ground_truth=texts["ground_truth"],
        tag=texts["tag"],
        fields=others,
    )


def _text(row: dict[str, Any], name: str) -> str:
    """A column as text, as training reads it: numbers become text, structures JSON, and null is as good as missing."""
    import json

    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, dict | list) and name == "ground_truth":
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool | dict | list):
        raise ValueError(f"'{name}' must be text or a number, found {type(value).__name__}")
    return str(value)


def _print_summary(tally: Counter[str]) -> None:
    statuses = ("ok", "could_not_grade", "timeout", "error")
    total = sum(tally[status] for status in statuses)
    shown = [f"{total} rows scored", f"{tally['right']} with score 1", f"{tally['ok']} graded"]
    shown += [f"{tally[status]} {status}" for status in statuses[1:] if tally[status]]
    shown += [f"{tally['unusable']} unusable"] if tally["unusable"] else []
    print(", ".join(shown), file=sys.stderr)
