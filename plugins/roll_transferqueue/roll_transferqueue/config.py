"""The keys of `transfer_backend.backend_config`, as TransferQueue publishes them, and one of ours."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SimpleStorageSettings(BaseModel):
    """Storage units in memory. Other keys of TransferQueue's own are passed on."""

    model_config = ConfigDict(extra="allow")

    num_data_storage_units: int = Field(default=2, gt=0)
    """Processes that hold rows. Each takes a logical CPU of Ray, and the controller takes one more."""
    total_storage_size: int | None = Field(default=None, gt=0)
    """Rows that all units hold at most. None: TransferQueue's default, 100000 before 0.1.7 and unbounded since."""


class StorageBackend(BaseModel):
    """Where rows lie. The options of a backend other than SimpleStorage are passed on as they are."""

    model_config = ConfigDict(extra="forbid")

    storage_backend: Literal["SimpleStorage", "MooncakeStore", "RayStore", "Yuanrong"] = "SimpleStorage"
    SimpleStorage: SimpleStorageSettings = Field(default_factory=SimpleStorageSettings)
    MooncakeStore: dict[str, Any] = Field(default_factory=dict)
    RayStore: dict[str, Any] = Field(default_factory=dict)
    Yuanrong: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _starts_no_master(self) -> StorageBackend:
        if self.storage_backend == "MooncakeStore" and self.MooncakeStore.get("auto_init") is None:
            raise ValueError(
                "MooncakeStore.auto_init must be said: where it is true, TransferQueue kills every mooncake_master on "
                "this host before it starts its own"
            )
        return self


class TransferQueueConfig(BaseModel):
    """TransferQueue's own config, of which `backend` is what a run sets."""

    model_config = ConfigDict(extra="forbid")

    backend: StorageBackend = Field(default_factory=StorageBackend)
    controller: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[str, Any] = Field(default_factory=dict)
    timeout_s: float = Field(default=60.0, gt=0)
    """The most that one operation waits."""
    start_timeout_s: float = Field(default=300.0, gt=0)
    """The most that starting its processes takes; each imports torch and Ray."""

    def published(self) -> dict[str, Any]:
        """What TransferQueue is given: its own keys, where the user said something."""
        chosen = self.backend.storage_backend
        backend = {"storage_backend": chosen, chosen: getattr(self.backend, chosen)}
        if isinstance(backend[chosen], BaseModel):
            backend[chosen] = backend[chosen].model_dump(exclude_none=True)
        given: dict[str, Any] = {"backend": backend, "controller": self.controller, "metrics": self.metrics}
        return {name: value for name, value in given.items() if value}

    @property
    def num_processes(self) -> int:
        """Processes that need a logical CPU of Ray each."""
        units = self.backend.SimpleStorage.num_data_storage_units
        return 1 + (units if self.backend.storage_backend == "SimpleStorage" else 0)
