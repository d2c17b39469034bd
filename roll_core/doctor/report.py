"""What a look at the machine found, in sections, with nothing secret in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from roll_core.findings import Finding, Level
from roll_core.trackers.redact import hide, redact, secret_values

Look = Callable[[], Iterable[Finding]]


@dataclass(frozen=True)
class Section:
    """Findings about one thing, such as the network."""

    title: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Report:
    """All sections. `level` is the worst finding's, and what the command exits with."""

    sections: tuple[Section, ...]

    @property
    def level(self) -> Level:
        """The worst level there is."""
        return max((finding.level for section in self.sections for finding in section.findings), default=Level.OK)

    def count(self, level: Level) -> int:
        """Number of findings of a level."""
        return sum(finding.level == level for section in self.sections for finding in section.findings)

    def as_data(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        sections = [
            {"title": section.title, "findings": [_as_data(finding) for finding in section.findings]}
            for section in self.sections
        ]
        counts = {level.name.lower(): self.count(level) for level in Level}
        return {"level": self.level.name.lower(), "exit_code": int(self.level), "counts": counts, "sections": sections}


def collect(title: str, look: Look) -> Section:
    """Look, and make a section of what was found. A look that breaks is a finding itself: the others still count."""
    try:
        findings = tuple(look())
    except Exception as error:
        broken = f"could not be looked at: {type(error).__name__}: {error}"
        findings = (Finding(Level.ERROR, title, broken, "report this; the other sections are not affected"),)
    return Section(title, findings)


def without_secrets(report: Report, environ: Mapping[str, str]) -> Report:
    """The same report, with the values of variables such as HF_TOKEN and logins in addresses hidden everywhere."""
    return Report(tuple(replace(one, findings=_hidden(one.findings, environ)) for one in report.sections))


def hide_secrets(text: str, environ: Mapping[str, str]) -> str:
    """A text without the secrets that the environment holds, and without logins in addresses."""
    return str(redact(hide(text, secret_values(environ))))


def _hidden(findings: Iterable[Finding], environ: Mapping[str, str]) -> tuple[Finding, ...]:
    return tuple(
        replace(finding, found=hide_secrets(finding.found, environ), remedy=hide_secrets(finding.remedy, environ))
        for finding in findings
    )


def _as_data(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level.name.lower(),
        "subject": finding.subject,
        "found": finding.found,
        "remedy": finding.remedy,
    }
