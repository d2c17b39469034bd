"""TensorBoard event files, written without TensorFlow and without torch."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from roll_core.trackers.base import NOT_FINITE, Metrics, RunInfo, Tracker

FILE_PREFIX = "events.out.tfevents."


class TensorboardTracker(Tracker):
    """Numbers as scalars, text as text, in an event file of its own per start of the run.

    `log_dir` is used exactly as given, so that the same path works for `tensorboard --logdir`; it defaults to
    `<output_dir>/tensorboard/<exp_name>`. Every start tells TensorBoard to drop the steps that it is about to repeat:
    those after the checkpoint it goes on from, or all of them for a start from scratch.
    """

    def __init__(self, run: RunInfo, *, log_dir: str | None = None) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = Path(log_dir).expanduser() if log_dir else run.output_dir / "tensorboard" / run.exp_name
        folder.mkdir(parents=True, exist_ok=True)
        self.location = str(folder)
        self._writer = RecordWriter((folder / _file_name(folder)).open("xb"))
        self._write_header(0 if run.resumed_step is None else run.resumed_step + 1)

    def log(self, step: int, metrics: Metrics) -> None:
        """Write one step and flush it. Text that stands for a number that is not finite is left out."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            _text(name, value) if isinstance(value, str) else Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
            if value not in NOT_FINITE
        ]
        self._write(step=step, summary=Summary(value=values))

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()

    def _write_header(self, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._write(step=first_step, file_version="brain.Event:2")
        # A session that starts at a step makes readers drop what earlier files hold from that step on.
        self._write(step=first_step, session_log=SessionLog(status=SessionLog.START))

    def _write(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.write(Event(wall_time=time.time(), **content).SerializeToString())
        self._writer.flush()


def _text(name: str, value: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[value.encode()])
    return Summary.Value(tag=name, metadata=metadata, tensor=tensor)


def _file_name(folder: Path) -> str:
    """A name that sorts after those already there: readers take files in the order of their names.

    Two starts within a second would otherwise sort by process id.
    """
    stamps = [path.name.removeprefix(FILE_PREFIX).partition(".")[0] for path in folder.glob(f"{FILE_PREFIX}*")]
    newest = max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=0)
    return f"{FILE_PREFIX}{max(int(time.time()), newest + 1):010d}.{socket.gethostname()}.{os.getpid()}.0"
