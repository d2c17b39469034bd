"""Checkpoints that are whole or absent, and how a run finds the one to go on from."""

from roll_core.checkpoint.folder import CheckpointFolder, Resume
from roll_core.checkpoint.manifest import FileRecord, Manifest
from roll_core.checkpoint.pipeline_state import PipelineState, load_pipeline_state, save_pipeline_state

__all__ = [
    "CheckpointFolder",
    "FileRecord",
    "Manifest",
    "PipelineState",
    "Resume",
    "load_pipeline_state",
    "save_pipeline_state",
]
