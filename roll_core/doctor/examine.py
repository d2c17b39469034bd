"""The whole look at a machine, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from roll_core import names
from roll_core.doctor.grader import grader_findings
from roll_core.doctor.installed import plugin_findings
from roll_core.doctor.limits import limit_findings, shared_memory_findings
from roll_core.doctor.machine import disk_findings, memory_findings, processor_findings
from roll_core.doctor.network import name_findings, port_findings, proxy_findings
from roll_core.doctor.packages import python_findings, requirement_findings, torch_findings
from roll_core.doctor.platforms import choice_findings, platform_findings, relevant_platforms
from roll_core.doctor.report import Look, Report, collect, without_secrets
from roll_core.doctor.settings import setting_findings
from roll_core.plugins import Registry


def examine(
    registry: Registry, environ: Mapping[str, str], asked: str | None = None, files: Sequence[str] | None = None
) -> Report:
    """Look at everything. Starts no cluster and changes nothing; imports of heavy libraries happen in other processes.

    Args:
        asked: the platform to look at, whether or not it has a device here.
        files: device files of well-known accelerators; by default those of this machine.

    Raises:
        PluginError: the platform asked for is unknown.
    """
    files = names.device_files() if files is None else files
    platforms = relevant_platforms(registry, asked, environ, files)
    looks: list[tuple[str, Look]] = [
        ("processors", processor_findings),
        ("memory", memory_findings),
        ("disk", partial(disk_findings, environ)),
        ("shared memory", shared_memory_findings),
        ("limits", limit_findings),
        ("ports", partial(port_findings, environ)),
        ("host name", name_findings),
        ("proxy", partial(proxy_findings, environ)),
        ("Python", python_findings),
        ("packages", partial(requirement_findings, registry)),
        ("torch", torch_findings),
        ("plugins", partial(plugin_findings, registry)),
        ("graders", grader_findings),
    ]
    if asked is None:
        looks.append(("choice of platform", partial(choice_findings, registry, environ, files)))
    looks += [(f"platform {one.backend.name}", partial(platform_findings, one, environ)) for one in platforms]
    looks.append(("environment", partial(setting_findings, environ)))
    sections = [collect(title, look) for title, look in looks]
    return without_secrets(Report(tuple(one for one in sections if one.findings)), environ)
