"""What a user sees of a run while it goes on and when it ends."""

from roll_core.display.alarm import ConstantRewardAlarm
from roll_core.display.run_display import RunDisplay
from roll_core.display.sample import Sample, sample_lines
from roll_core.display.summary import RunSummary, summary_lines

__all__ = ["ConstantRewardAlarm", "RunDisplay", "RunSummary", "Sample", "sample_lines", "summary_lines"]
