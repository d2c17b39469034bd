"""The learning curve as a picture: held-out accuracy and training reward over the steps.

python examples/quickstart/curve.py METRICS.jsonl CURVE.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

ACCURACY = "val_correct/all/mean"
REWARD = "reward/mean"

Points = list[tuple[int, float]]


def read_points(metrics: Path, name: str) -> Points:
    """(step, value) of a metric, for the steps that have it."""
    records = [json.loads(line) for line in metrics.read_text().splitlines() if line.strip()]
    return [(record["step"], float(record[name])) for record in records if name in record]


def draw(metrics: Path, picture: Path, title: str = "Held-out accuracy") -> None:
    """Draw the curve of a metrics.jsonl into a PNG.

    Raises:
        ValueError: no step of the file has an accuracy or a reward.
    """
    accuracy, reward = read_points(metrics, ACCURACY), read_points(metrics, REWARD)
    if not accuracy and not reward:
        raise ValueError(f"nothing to draw: no step in {metrics} has {ACCURACY} or {REWARD}")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if reward:
        axes.plot(*zip(*reward), color="tab:gray", linewidth=1, label="reward of training samples")
    if accuracy:
        axes.plot(*zip(*accuracy), color="tab:blue", marker="o", linewidth=2, label="accuracy on held-out problems")
        for step, value in (accuracy[0], accuracy[-1]):
            axes.annotate(f"{value:.2f}", (step, value), textcoords="offset points", xytext=(0, 8), ha="center")
    axes.set(xlabel="step", ylim=(0, 1.08), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)


def main(arguments: Sequence[str]) -> None:
    """Draw METRICS.jsonl into CURVE.png."""
    if len(arguments) != 2:
        sys.exit(__doc__)
    draw(Path(arguments[0]), Path(arguments[1]))
    print(arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
