"""Run an agentic config, and compare every sampled token's log-probability with the trainer's for the same weights.

python exact_tokens.py CONFIG [key=value ...]   with TOLERANCE="1e-3"

The run ends where one differs by more. Prints how many tokens were compared, and the largest difference.
"""

import os
import sys
from typing import Any

from roll_core.config.compose import load_config_file
from roll_core.data import DataProto
from roll_core.errors import RollError
from roll_core.pipelines.agentic_shaping import EpisodeShaper
from roll_core.pipelines.run import run_config


def main() -> None:
    tolerance, shape = float(os.environ["TOLERANCE"]), EpisodeShaper.__call__
    steps = rows = tokens = 0
    largest = 0.0

    def shape_and_compare(self: EpisodeShaper, batch: DataProto) -> Any:
        nonlocal steps, rows, tokens, largest
        mask = batch["response_mask"]
        difference = (batch["old_log_probs"] - batch["infer_log_probs"])[mask].abs()
        steps, rows, tokens = steps + 1, rows + len(batch), tokens + len(difference)
        largest = max(largest, float(difference.max()))
        if largest > tolerance:
            raise RollError(f"step {steps}: a token's log-probability is off by {largest}, more than {tolerance}")
        return shape(self, batch)

    EpisodeShaper.__call__ = shape_and_compare  # type: ignore[method-assign]
    run_config(load_config_file(sys.argv[1], sys.argv[2:], pipeline="agentic"))
    print(f"EXACT steps={steps} rows={rows} tokens={tokens} largest={largest:.2e}")


if __name__ == "__main__":
    main()
