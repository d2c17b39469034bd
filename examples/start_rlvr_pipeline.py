"""Run an RLVR config: python examples/start_rlvr_pipeline.py --config_path DIR --config_name NAME [key=value ...]

DIR is absolute, or relative to the working directory or to this folder.
"""

from roll_core.pipelines.launcher import start

if __name__ == "__main__":
    start("Run an RLVR config.")
