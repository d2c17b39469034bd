"""Findings about cards, the network and the environment."""

from typing import Any

import pytest
from roll_ascend.checks import findings
from roll_ascend.env import READ_BY_NOBODY
from roll_ascend.machine import this_machine

from roll_core.findings import Level


def test_a_container_without_devices_is_an_error(planted: Any) -> None:
    planted.cards(0)
    finding = planted.worst("devices")
    assert (finding.level, finding.found) == (Level.ERROR, "no device file /dev/davinci*")


def test_devices_without_their_managers_are_an_error(planted: Any) -> None:
    (planted.root / "dev/hisi_hdc").unlink()
    finding = planted.worst("devices")
    assert (finding.level, finding.found) == (Level.ERROR, "16 cards without hisi_hdc")
    assert "--device /dev/hisi_hdc" in finding.remedy


def test_eight_cards_of_an_a3_are_a_warning_and_of_an_a2_are_all(planted: Any) -> None:
    planted.cards(8)
    assert planted.worst("devices").level is Level.WARNING
    planted.chip("A2")
    assert planted.worst("devices").found == "8 cards, davinci0 to davinci7"


def test_a_visible_card_that_is_not_there_is_an_error(planted: Any) -> None:
    assert planted.worst("visible cards").found == "8,9,10,11; device_mapping counts within them, from 0 to 3"
    planted.environ["ASCEND_RT_VISIBLE_DEVICES"] = "4,16"
    finding = planted.worst("visible cards")
    assert finding.level is Level.ERROR
    assert finding.found == "ASCEND_RT_VISIBLE_DEVICES=4,16 names 16, and there is no such card"
    assert finding.remedy.startswith("some of 0, 1, 2, ")
    del planted.environ["ASCEND_RT_VISIBLE_DEVICES"]
    assert planted.seen("visible cards") == []


@pytest.mark.parametrize(("value", "level"), [("16666", Level.WARNING), ("auto", Level.OK), ("61000-61050", Level.OK)])
def test_one_port_for_all_roles_of_a_card_is_a_warning(planted: Any, value: str, level: Level) -> None:
    planted.environ["HCCL_NPU_SOCKET_PORT_RANGE"] = value
    assert planted.worst("HCCL ports of a card").level is level


def listen(planted: Any, port: int) -> None:
    lines = ["  sl  local_address rem_address   st", f"   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000"]
    planted.file(
        "proc/net/tcp", "\n".join([*lines, f"   1: 0100007F:{port + 1:04X} 0100007F:0016 01 00000000:00000000"])
    )


def test_a_host_port_that_is_taken_is_an_error(planted: Any) -> None:
    listen(planted, 60003)
    finding = planted.worst("HCCL ports of the host")
    assert finding.level is Level.ERROR
    assert finding.found == "HCCL's default means ports 60000-60015, and something listens on 60003"
    planted.environ["HCCL_IF_BASE_PORT"] = "23456"
    assert planted.worst("HCCL ports of the host").found == "ports 23456-23471 are free"
    planted.environ["HCCL_HOST_SOCKET_PORT_RANGE"] = "60000,60003-60004"
    assert planted.worst("HCCL ports of the host").level is Level.ERROR
    planted.environ["HCCL_HOST_SOCKET_PORT_RANGE"] = "auto"
    assert planted.worst("HCCL ports of the host").level is Level.OK


def test_ports_that_the_system_may_deal_are_a_warning_with_the_command(planted: Any) -> None:
    planted.file("proc/sys/net/ipv4/ip_local_reserved_ports", "")
    finding = planted.worst("HCCL ports of the host")
    assert finding.level is Level.WARNING
    assert finding.remedy == "sysctl -w net.ipv4.ip_local_reserved_ports=60000-60015"


NETWORK = {"lo": ("127.0.0.1",), "enp194s0f0": ("10.0.0.2",), "docker0": ("172.17.0.1",)}


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("enp194s0f0", Level.OK),
        ("enp", Level.OK),
        ("=enp194s0f0", Level.OK),
        ("^docker,lo", Level.OK),
        ("=enp", Level.ERROR),
        ("eth0", Level.ERROR),
        ("^enp,docker,lo", Level.ERROR),
    ],
)
def test_an_interface_that_this_node_lacks_is_an_error(planted: Any, name: str, level: Level) -> None:
    planted.given["addresses"] = NETWORK
    planted.environ["HCCL_SOCKET_IFNAME"] = name
    finding = planted.worst("HCCL interface")
    assert finding.level is level
    assert level is Level.OK or "docker0, enp194s0f0, lo; the name must be the same on every node" in finding.remedy


def test_several_nodes_need_the_interface_named(planted: Any) -> None:
    assert planted.worst("HCCL interface").level is Level.OK
    planted.environ["WORLD_SIZE"] = "2"
    assert planted.worst("HCCL interface").level is Level.WARNING


@pytest.mark.parametrize(
    ("address", "interface", "nodes", "level"),
    [
        ("10.0.0.2", "enp194s0f0", "2", Level.OK),
        ("10.0.0.2", None, "1", Level.OK),
        ("10.0.0.1", None, "2", Level.ERROR),
        ("10.0.0.2", "docker0", "2", Level.ERROR),
        ("127.0.0.1", None, "2", Level.ERROR),
    ],
)
def test_an_address_of_another_node_is_an_error(
    planted: Any, address: str, interface: str | None, nodes: str, level: Level
) -> None:
    planted.given["addresses"] = NETWORK
    planted.environ |= {"HCCL_IF_IP": address, "WORLD_SIZE": nodes}
    if interface:
        planted.environ["HCCL_SOCKET_IFNAME"] = interface
    finding = planted.worst("HCCL address")
    assert finding.level is level
    if address == "10.0.0.1":
        assert finding.found == "HCCL_IF_IP=10.0.0.1 is not an address of this node"


def test_the_vector_cores_cut_the_timeout_and_that_is_said(planted: Any) -> None:
    planted.environ |= {"HCCL_OP_EXPANSION_MODE": "AIV", "HCCL_EXEC_TIMEOUT": "3600"}
    finding = planted.worst("HCCL timeouts")
    assert finding.level is Level.WARNING and "waits 1091 seconds at most, not HCCL_EXEC_TIMEOUT=3600" in finding.found
    planted.environ["HCCL_EXEC_TIMEOUT"] = "1000"
    assert planted.worst("HCCL timeouts").level is Level.OK


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("HCCL_BUFFSIZE", "2147483648", "it is counted in MB: HCCL_BUFFSIZE=2048"),
        ("HCCL_CONNECT_TIMEOUT", "60", "seconds, 120 where it is not set"),
        ("HCCL_IF_BASE_PORT", "65530", "port, 60000 where it is not set"),
        ("HCCL_IF_IP", "node-1", "address, the first interface's where it is not set"),
        ("HCCL_NPU_SOCKET_PORT_RANGE", "61000-", "ports, 16666 where it is not set"),
        ("HCCL_OP_EXPANSION_MODE", "aiv", "mode, AI_CPU on A3, HOST on A2 where it is not set"),
        ("TASK_QUEUE_ENABLE", "3", "level, 1 where it is not set"),
    ],
)
def test_impossible_values_are_errors_and_bytes_are_turned_into_megabytes(
    planted: Any, name: str, value: str, remedy: str
) -> None:
    planted.environ[name] = value
    finding = planted.worst("values of variables")
    assert finding.level is Level.ERROR and finding.found.startswith(f"{name}={value} ")
    assert finding.remedy == remedy


@pytest.mark.parametrize("name", sorted(READ_BY_NOBODY))
def test_variables_that_nothing_reads_are_named(planted: Any, name: str) -> None:
    planted.environ[name] = "1"
    finding = planted.worst("unread variables")
    assert finding.level is Level.WARNING and finding.found.startswith(f"{name} is read by none of")
    assert finding.remedy.startswith(f"unset {name}")


def test_a_shell_that_switches_nz_on_is_an_error(planted: Any) -> None:
    planted.environ["VLLM_ASCEND_ENABLE_NZ"] = "1"
    assert planted.worst("NZ layout").level is Level.ERROR
    planted.environ["VLLM_ASCEND_ENABLE_NZ"] = "0"
    assert planted.worst("NZ layout").level is Level.OK


def test_a_shell_whose_allocator_reaches_engines_is_an_error(planted: Any) -> None:
    planted.environ["PYTORCH_NPU_ALLOC_CONF"] = "page_size:1g,expandable_segments:True"
    finding = planted.worst("expandable segments")
    assert finding.level is Level.ERROR and finding.remedy.startswith("unset PYTORCH_NPU_ALLOC_CONF")
    planted.environ["PYTORCH_NPU_ALLOC_CONF"] = "expandable_segments:False"
    assert planted.worst("expandable segments").level is Level.OK


def test_a_shell_whose_task_queue_reaches_engines_is_a_warning(planted: Any) -> None:
    planted.environ["TASK_QUEUE_ENABLE"] = "2"
    assert planted.worst("task queue").level is Level.WARNING


@pytest.mark.parametrize(
    ("name", "value"),
    [("ASCEND_GLOBAL_LOG_LEVEL", "1"), ("ASCEND_LAUNCH_BLOCKING", "1"), ("HCCL_DETERMINISTIC", "true")],
)
def test_settings_for_finding_faults_are_warned_of(planted: Any, name: str, value: str) -> None:
    planted.environ[name] = value
    finding = planted.worst("debugging")
    assert finding.level is Level.WARNING and finding.found.startswith(f"{name}={value}")


SINGLE_NODE_OF_THE_GUIDE = {
    "HCCL_CONNECT_TIMEOUT": "3600",
    "HCCL_EXEC_TIMEOUT": "3600",
    "HCCL_DETERMINISTIC": "false",
    "HCCL_OP_EXPANSION_MODE": "AIV",
    "NPU_MEMORY_FRACTION": "0.96",
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    "MULTI_STREAM_MEMORY_REUSE": "1",
    "TASK_QUEUE_ENABLE": "2",
    "COMBINED_ENABLE": "1",
    "CPU_AFFINITY_CONF": "2",
    "OMP_NUM_THREADS": "1",
    "VLLM_USE_V1": "1",
    "VLLM_ASCEND_ENABLE_FLASHCOMM": "0",
    "VLLM_ASCEND_ENABLE_PREFETCH_MLP": "1",
    "ACL_OP_COMPILER_CACHE_MODE": "enable",
    "ACL_OP_COMPILER_CACHE_DIR": "/tmp/npu_cache",
    "ASCEND_MAX_OP_CACHE_SIZE": "5000",
    "ASCEND_GLOBAL_LOG_LEVEL": "3",
    "ASDOPS_LOG_LEVEL": "ERROR",
    "ATB_LOG_LEVEL": "ERROR",
}


def test_what_is_wrong_in_the_guides_own_environment_is_told_and_nothing_else(planted: Any) -> None:
    planted.environ |= SINGLE_NODE_OF_THE_GUIDE
    found = [(one.level, one.subject) for one in findings(planted.machine()) if one.level is not Level.OK]
    unread = [(Level.WARNING, "unread variables")] * 4
    segments, queue = (Level.ERROR, "expandable segments"), (Level.WARNING, "task queue")
    assert found == [(Level.WARNING, "HCCL timeouts"), *unread, segments, queue]


def test_values_that_cannot_be_read_stop_no_other_check(planted: Any) -> None:
    planted.environ |= {"HCCL_IF_BASE_PORT": "many", "HCCL_HOST_SOCKET_PORT_RANGE": "all", "WORLD_SIZE": "two"}
    found = [finding for finding in findings(planted.machine()) if finding.level is Level.ERROR]
    assert {finding.subject for finding in found} == {"values of variables"} and len(found) == 2


def test_this_machine_can_be_looked_at() -> None:
    machine = this_machine()
    assert "roll-ascend" in machine.versions and "lo" in machine.addresses
    assert all(finding.found for finding in findings(machine))
