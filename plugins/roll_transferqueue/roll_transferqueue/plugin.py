"""What roll_transferqueue offers to roll-core: nothing yet. Its transport comes in a later version."""

from roll_core import Backend, hookimpl

ROLL_PLUGIN_API = 1


@hookimpl
def roll_transports() -> list[Backend]:
    """No transport: a config that asks for TransferQueue stops with a message, rather than running without it."""
    return []
