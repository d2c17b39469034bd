"""Mistakes in the plugin itself, as edits to copies of roll_demo."""

from functools import partial

from roll_core.testing.platform_contract import PlatformContract
from roll_core.testing.plugin_contract import PluginContract
from tests.testing.planted_registry import edited

HOOK = "@hookimpl\ndef roll_platforms"
IMPORT = "import os\n\nfrom roll_core"
OFFER = '[Backend("demo_rows", "roll_demo.transport:DemoTransport", "rows of one process, counted")]'
PROBE = '    count = os.environ.get("DEMO_DEVICES", "0")\n'

fails_to_load = partial(edited, contract=PluginContract, test="test_it_loads", file="plugin.py")
fails_to_load("a misspelt hook", old=HOOK, new="@hookimpl\ndef roll_platform")
fails_to_load("a hook without its marker", old=HOOK, new="def roll_platforms")
fails_to_load("an old API number", old="_API = 1", new="_API = 0")
fails_to_load("no API number", old="ROLL_PLUGIN_API = 1", new="")
fails_to_load("a hook that returns nothing", old=f"return {OFFER}", new=OFFER)
fails_to_load("two backends of one name", old=OFFER, new=f"{OFFER} * 2")
fails_to_load("a platform named like core's", old='Backend("demo",', new='Backend("cpu",')
fails_to_load("an import that raises", old=IMPORT, new='import os\n\nos.environ["DEMO_HOME"]\n\nfrom roll_core')

edited(
    "a heavy import at the top of the plugin",
    PluginContract,
    "test_its_module_imports_the_standard_library_and_roll_core_only",
    *("plugin.py", IMPORT, "import os\n\nimport numpy\n\nfrom roll_core"),
)
edited(
    "an environment variable set at import",
    PluginContract,
    "test_importing_it_changes_nothing",
    *("plugin.py", IMPORT, 'import os\n\nos.environ["DEMO_READY"] = "1"\n\nfrom roll_core'),
)
edited(
    "a probe that imports torch",
    PluginContract,
    "test_its_probes_are_cheap",
    *("plugin.py", PROBE, f"    import torch\n\n{PROBE}"),
)
edited(
    "a probe without a reason",
    PluginContract,
    "test_a_probe_answers_with_a_reason",
    *("plugin.py", 'f"DEMO_DEVICES is {count}"', '""'),
)
edited(
    "a probe that answers True",
    PluginContract,
    "test_a_probe_answers_with_a_reason",
    *("plugin.py", 'return Availability(count != "0", f"DEMO_DEVICES is {count}")', 'return count != "0"'),
)
edited(
    "a target whose class is missing",
    PluginContract,
    "test_a_target_can_be_imported",
    *("plugin.py", "platform:DemoPlatform", "platform:DemoPlatfrom"),
)
edited(
    "a target whose module is missing",
    PluginContract,
    "test_a_target_can_be_imported",
    *("plugin.py", "roll_demo.patch:", "roll_demo.patches:"),
)
edited(
    "a target of another kind",
    PluginContract,
    "test_a_target_can_be_imported",
    *("plugin.py", "roll_demo.transport:DemoTransport", "roll_demo.patch:DemoPatch"),
)
edited(
    "an extra that the package does not have",
    PluginContract,
    "test_extras_are_those_of_its_package",
    *("plugin.py", 'extra="device"', 'extra="devices"'),
)
edited(
    "a trainer whose name does not say that it trains",
    PluginContract,
    "test_a_backend_is_described",
    *("plugin.py", 'Backend("demo_train"', 'Backend("demo_fsdp"'),
)
edited(
    "torch at the top of an engine's module",
    PluginContract,
    "test_strategies_can_be_checked_without_torch",
    *("engine.py", "from pydantic", "import torch\nfrom pydantic"),
)
edited(
    "torch at the top of a platform's module",
    PlatformContract,
    "test_facts_can_be_read_without_torch",
    *("platform.py", "import re\n", "import re\n\nimport torch\n"),
)
