"""The device plugins of this repository keep all contracts, as far as a machine without their devices can tell.

The same classes as `pytest --pyargs roll_core.testing.suite --roll-plugin NAME` collects.
"""

from roll_core.testing.collecting import contracts_of

for plugin in ("roll_ascend", "roll_cuda"):
    for title, contract in contracts_of(plugin):
        globals()[f"Test {plugin} {title}"] = contract
