"""FSDP2 keeps the contract of training strategies."""

import pytest

from roll_core.testing.train_contract import TrainContract
from roll_core.training.fsdp2 import Fsdp2Strategy


class TestFsdp2(TrainContract):
    strategy_class = Fsdp2Strategy


@pytest.mark.slow
class TestFsdp2Offloaded(TrainContract):
    """With units that FSDP2 keeps in host memory."""

    strategy_class = Fsdp2Strategy
    strategy_config = {"offload_policy": True}


class TestFsdp2Scoring(TrainContract):
    strategy_class = Fsdp2Strategy
    strategy_name = "fsdp2_infer"
    has_optimizer = False
