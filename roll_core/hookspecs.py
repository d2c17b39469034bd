"""The five questions a plugin may answer. Each answer is a list of `Backend`s."""

import pluggy

from roll_core.backend import Backend

hookspec = pluggy.HookspecMarker("roll_core")


@hookspec
def roll_platforms() -> list[Backend]:  # type: ignore[empty-body]
    """Kinds of device. Each target is a `roll_core.platforms.Platform`."""


@hookspec
def roll_train_strategies() -> list[Backend]:  # type: ignore[empty-body]
    """Ways to train or score a model. Each target is a `roll_core.training.TrainStrategy`."""


@hookspec
def roll_infer_strategies() -> list[Backend]:  # type: ignore[empty-body]
    """Engines that generate. Each target is a `roll_core.inference.InferStrategy`."""


@hookspec
def roll_transports() -> list[Backend]:  # type: ignore[empty-body]
    """Ways to move a batch's rows and fields. Each target is a `roll_core.transport.Transport`."""


@hookspec
def roll_model_patches() -> list[Backend]:  # type: ignore[empty-body]
    """Changes to a model's modules. Each target is a `roll_core.training.ModelPatch`."""
