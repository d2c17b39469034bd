"""The plugin offers TransferQueue, takes the config as published, and says what is missing."""

import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pydantic import ValidationError
from roll_transferqueue.config import TransferQueueConfig
from roll_transferqueue.service import library, start

from roll_core.errors import RollError
from roll_core.plugins import load_plugins
from roll_core.resolve import resolve_backend
from roll_core.transport import Transport

POINT = EntryPoint("roll_transferqueue", "roll_transferqueue.plugin", "roll_core")


def test_transfer_queue_is_found_by_the_name_that_configs_use() -> None:
    registry = load_plugins({}, [POINT])
    found = resolve_backend(registry, "transport", "TransferQueue")
    assert issubclass(found.load(), Transport)
    assert found.backend.probe().reason.startswith("TransferQueue 0.1.")


def test_the_published_config_is_taken_and_handed_on_as_it_is() -> None:
    published = {"backend": {"SimpleStorage": {"num_data_storage_units": 16}}}
    config = TransferQueueConfig.model_validate(published)
    assert config.published() == {
        "backend": {"storage_backend": "SimpleStorage", "SimpleStorage": {"num_data_storage_units": 16}}
    }
    assert config.num_processes == 17


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_data_storage_units": 16}, "num_data_storage_units"),
        ({"backend": {"SimpleStore": {}}}, "SimpleStore"),
        ({"backend": {"SimpleStorage": {"num_data_storage_units": 0}}}, "greater than 0"),
        ({"backend": {"storage_backend": "MooncakeStore"}}, "TransferQueue kills every mooncake_master on this host"),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TransferQueueConfig.model_validate(config)


def test_without_ray_it_says_what_to_start() -> None:
    with pytest.raises(RollError, match="TransferQueue needs Ray, and Ray has not been started"):
        start(TransferQueueConfig())


def test_a_missing_or_unfitting_package_is_told_with_the_python_it_would_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transfer_queue", None)
    with pytest.raises(RollError, match=r"TransferQueue 0\.1\.\d+ cannot be imported on Python 3"):
        library(TransferQueueConfig())
    monkeypatch.setattr("platform.python_version", lambda: "3.9.1")
    with pytest.raises(RollError, match=r"TransferQueue 0\.1\.\d+ supports Python >=3\.10, and this is 3\.9\.1\n  try"):
        library(TransferQueueConfig())
