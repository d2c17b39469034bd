"""Play episodes of an agentic config:

    python examples/start_agentic_rollout_pipeline.py --config_path DIR --config_name NAME [key=value ...]

DIR is absolute, or relative to the working directory or to this folder. A config that could train is used for
generating and scoring only.
"""

from roll_core.pipelines.launcher import start

if __name__ == "__main__":
    start("Play episodes of an agentic config.", ["pipeline_cls=rollout"])
