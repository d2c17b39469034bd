"""Answer the validation problems of an RLVR config:

    python examples/start_rlvr_rollout_pipeline.py --config_path DIR --config_name NAME [key=value ...]

DIR is absolute, or relative to the working directory or to this folder. A config that could train is used for
generating and scoring only.
"""

from roll_core.pipelines.launcher import start

if __name__ == "__main__":
    start("Answer and score the validation problems of an RLVR config.", ["pipeline_cls=rollout"])
