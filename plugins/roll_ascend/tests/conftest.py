"""A machine to plant faults in: files below a folder, packages as pip would leave them, an environment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from roll_ascend.checks import CHECKS, findings
from roll_ascend.machine import Machine
from roll_ascend.versions import GUIDE

from roll_core.findings import Finding, Level

CANN = "usr/local/Ascend/ascend-toolkit/latest"
SOURCED = {"ASCEND_HOME_PATH": f"/{CANN}", "ASCEND_OPP_PATH": f"/{CANN}/opp", "ATB_HOME_PATH": "/usr/local/Ascend/nnal"}
PCI = {"A2": "0xd802", "A3": "0xd803", "other": "0xd500"}


class Planted:
    """A machine on which everything is right: an Atlas A3 with the guide's stack, CANN sourced."""

    def __init__(self, folder: Path) -> None:
        self.root, self.site = folder / "root", folder / "site"
        self.environ = SOURCED | {"ASCEND_RT_VISIBLE_DEVICES": "8,9,10,11"}
        self.given: dict[str, Any] = {"addresses": {"lo": ("127.0.0.1",)}}
        self.cards(16)
        self.chip("A3")
        self.file("usr/local/Ascend/driver/version.info", "Version=25.2.0\nascendhal_version=7.35.23")
        self.cann("9.1.0")
        self.file("proc/net/tcp", "header")
        self.file("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999")
        self.file("proc/sys/net/ipv4/ip_local_reserved_ports", "60000-60015")
        for name, version in GUIDE.versions.items():
            if name not in ("python", "CANN"):
                self.install(name, version)
        self.package("triton", "__init__.py", "")
        self.package("vllm_ascend", "_build_info.py", "# Auto-generated file\n__device_type__ = 'A3'\n")

    def file(self, path: str, text: str = "") -> None:
        """Write a file below the root."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def cards(self, count: int) -> None:
        """As many device files, with those that manage them."""
        shutil.rmtree(self.root / "dev", ignore_errors=True)
        for name in (*(f"davinci{card}" for card in range(count)), "davinci_manager", "devmm_svm", "hisi_hdc"):
            self.file(f"dev/{name}")

    def chip(self, name: str) -> None:
        """What the PCI bus shows, behind a network card of the same vendor."""
        for slot, device in (("0000:01:00.0", "0xa222"), ("0000:c1:00.0", PCI[name])):
            self.file(f"sys/bus/pci/devices/{slot}/vendor", "0x19e5\n")
            self.file(f"sys/bus/pci/devices/{slot}/device", f"{device}\n")

    def cann(self, version: str) -> None:
        """CANN's own record of its version."""
        text = f"package_name=Ascend-cann-toolkit\nversion={version}\narch=aarch64\n"
        self.file(f"{CANN}/aarch64-linux/ascend_toolkit_install.info", text)

    def install(self, name: str, version: str) -> None:
        """Metadata of a package, in place of another version's."""
        self.uninstall(name)
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def uninstall(self, name: str) -> None:
        """Remove a package's metadata; its folder stays."""
        for info in self.site.glob(f"{name.replace('-', '_')}-[0-9]*.dist-info"):
            shutil.rmtree(info)

    def package(self, name: str, file: str, text: str) -> None:
        """A file of a package."""
        (self.site / name).mkdir(parents=True, exist_ok=True)
        (self.site / name / file).write_text(text)

    def machine(self) -> Machine:
        """What the checks look at."""
        return Machine(self.root, self.environ, (str(self.site),), **self.given)

    def seen(self, subject: str) -> list[Finding]:
        """The findings about one subject."""
        assert subject in CHECKS
        return [finding for finding in findings(self.machine()) if finding.subject == subject]

    def worst(self, subject: str) -> Finding:
        """The worst finding about a subject; one that is not well says what to do."""
        finding = max(self.seen(subject), key=lambda one: one.level)
        assert finding.level is Level.OK or finding.remedy
        return finding


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    """A machine on which everything is right, until a test changes it."""
    return Planted(tmp_path)


@pytest.fixture
def config() -> Callable[..., Any]:
    """An RLVR config that an NPU can run, with dotted keys changed; None removes one."""
    from roll_core.config.schema import RLVRConfig

    def make(changes: dict[str, Any] | None = None) -> RLVRConfig:
        given: dict[str, Any] = {
            "rollout_batch_size": 8,
            "num_return_sequences_in_group": 4,
            "prompt_length": 32,
            "response_length": 32,
            "adv_estimator": "grpo",
            "pretrain": "model",
            "num_gpus_per_node": 8,
            "actor_train": {
                "data_args": {"file_name": ["train.jsonl"]},
                "strategy_args": {"strategy_name": "fsdp2_train"},
                "device_mapping": "list(range(0, 4))",
            },
            "actor_infer": {
                "strategy_args": {"strategy_name": "vllm", "strategy_config": {}},
                "device_mapping": "list(range(4, 8))",
            },
            "rewards": {"math_rule": {"world_size": 2}},
        }
        for dotted, value in (changes or {}).items():
            *parents, last = dotted.split(".")
            level = given
            for part in parents:
                level = level.setdefault(part, {})
            level[last] = value
        return RLVRConfig.model_validate(given)

    return make
