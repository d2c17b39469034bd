"""Who is on the devices: where trainers and engines share them, they take turns."""

from __future__ import annotations

from collections.abc import Sequence

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.config.schema import PPOConfig
from roll_core.errors import RollError
from roll_core.platforms import Ability, Platform


class DeviceTurns:
    """Moves models off devices that another role needs next. Does nothing where no device is shared.

    At first all have loaded what they need and none has been moved.

    A device that is only a process has no memory of its own to make room in, so nothing is moved there either.
    """

    def __init__(
        self,
        config: PPOConfig,
        platform: Platform,
        trainers: Sequence[WorkerGroup],
        engines: WorkerGroup,
        waiter: Waiter,
    ) -> None:
        engine_devices = set(config.actor_infer.device_mapping or ())
        roles = {"actor_train": config.actor_train, "critic": config.critic, "reference": config.reference}
        self.sharing = [
            group
            for group in trainers
            if (role := roles.get(group.role)) is not None and engine_devices & set(role.device_mapping or ())
        ]
        if Ability.SLEEP not in platform.abilities():
            self.sharing = []
        if self.sharing and config.async_generation_ratio > 0:
            names = " and ".join(group.role for group in self.sharing)
            raise RollError(
                f"{names} shares devices with actor_infer, which has to leave them for every training, and with "
                f"async_generation_ratio {config.async_generation_ratio:g} never stops generating"
                f"\n  actor_infer: {sorted(engine_devices)}"
                "\n  try: an actor_infer.device_mapping of its own, or async_generation_ratio: 0"
            )
        self.engines, self.waiter = engines, waiter
        self._engines_are_awake = self._trainers_are_loaded = True

    def begin_update(self) -> None:
        """Engines make room for new weights while the trainer still holds them."""
        self._wake_engines()
        self._load_trainers()

    def begin_generation(self) -> None:
        """Trainers leave the devices to the engines."""
        if self.sharing and self._trainers_are_loaded:
            self.waiter.wait([call for group in self.sharing for call in group.submit("offload")])
            self._trainers_are_loaded = False
        self._wake_engines()

    def begin_training(self) -> None:
        """Engines leave the devices to the trainers."""
        if self.sharing and self._engines_are_awake:
            self.waiter.wait(self.engines.submit("sleep"))
            self._engines_are_awake = False
        self._load_trainers()

    def _wake_engines(self) -> None:
        if self.sharing and not self._engines_are_awake:
            self.waiter.wait(self.engines.submit("wake"))
            self._engines_are_awake = True

    def _load_trainers(self) -> None:
        if self.sharing and not self._trainers_are_loaded:
            self.waiter.wait([call for group in self.sharing for call in group.submit("reload")])
            self._trainers_are_loaded = True
