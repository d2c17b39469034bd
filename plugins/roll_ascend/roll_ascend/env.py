"""Environment variables of HCCL, CANN, torch_npu and vLLM-Ascend that this plugin sets or checks, each with its reason.

Sources: CANN's and torch_npu's references of environment variables (hiascend.com, CANN 8.5 and Ascend Extension for
PyTorch 7.2), the packages torch-npu, vllm and vllm-ascend as published, and ROLL's guides for Ascend NPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roll_ascend.values import Address, AnyText, OneOf, Ports, Value, Whole

SWITCH = OneOf(("0", "1"))
WORDS = OneOf(("true", "false", "strict"), any_case=True)
LOG_LEVEL = OneOf(("DEBUG", "INFO", "WARN", "ERROR", "FATAL", "TRACE"), any_case=True)


@dataclass(frozen=True)
class Variable:
    """One variable.

    `default` is what the library takes where nobody sets it, `training` and `generation` what workers get from this
    plugin unless the user says otherwise; None leaves the library's default.
    """

    name: str
    unit: str
    default: str
    reason: str
    training: str | None = None
    generation: str | None = None
    value: Value = field(default_factory=AnyText)
    per_node: bool = False
    """Whether each node needs a value of its own, so that a config shared by many nodes cannot hold it."""


def _everywhere(name: str, unit: str, default: str, setting: str, reason: str, value: Value | None = None) -> Variable:
    return Variable(name, unit, default, reason, setting, setting, value or AnyText())


HCCL = (
    _everywhere(
        "HCCL_NPU_SOCKET_PORT_RANGE",
        "ports",
        "16666",
        "auto",
        "Roles that share a card each open a port on its network interface; with one fixed port the second role fails.",
        Ports(),
    ),
    _everywhere(
        "HCCL_CONNECT_TIMEOUT",
        "seconds",
        "120",
        "3600",
        "How long a rank waits for its peers to connect; others wait while one loads a large model.",
        Whole(120, 7200),
    ),
    _everywhere(
        "HCCL_EXEC_TIMEOUT",
        "seconds",
        "1836",
        "3600",
        "How long a rank waits inside a collective; 0 waits for ever. With HCCL_OP_EXPANSION_MODE=AIV at most 1091 "
        "seconds take effect.",
        Whole(0, 2147483647),
    ),
    Variable(
        "HCCL_BUFFSIZE",
        "MB",
        "200",
        "Two buffers of this size per communicator are taken from device memory. CANN counts in MB; ROLL's guide shows "
        "2147483648 as if it were bytes.",
        value=Whole(1, 65536),
    ),
    Variable(
        "HCCL_HOST_SOCKET_PORT_RANGE",
        "ports",
        "60000-60015",
        "Ports of the host; wins over HCCL_IF_BASE_PORT. Left unset: on Atlas A2 fused operators (MC2), which engines "
        "use, exclude it.",
        value=Ports(),
    ),
    Variable(
        "HCCL_IF_BASE_PORT",
        "port",
        "60000",
        "First of 16 consecutive ports of the host; all must be free, and open between nodes.",
        value=Whole(1024, 65520),
    ),
    Variable(
        "HCCL_IF_IP",
        "address",
        "the first interface's",
        "The address of this node by which its peers reach it; another one on each node.",
        value=Address(),
        per_node=True,
    ),
    Variable(
        "HCCL_SOCKET_IFNAME",
        "interfaces",
        "any but docker and lo",
        "The host's network interface; must exist under the same name on every node.",
    ),
    Variable(
        "HCCL_OP_EXPANSION_MODE",
        "mode",
        "AI_CPU on A3, HOST on A2",
        "Where collectives are scheduled; AIV, the vector cores, is fastest and limits HCCL_EXEC_TIMEOUT.",
        value=OneOf(("AI_CPU", "AIV", "HOST", "HOST_TS")),
    ),
    Variable(
        "HCCL_DETERMINISTIC",
        "true or false",
        "false",
        "Sums in a fixed order are repeatable and slow.",
        value=WORDS,
    ),
    Variable(
        "HCCL_WHITELIST_DISABLE",
        "0 or 1",
        "1",
        "0 lets only the addresses of a file communicate.",
        value=SWITCH,
    ),
)
TORCH_NPU = (
    Variable(
        "TASK_QUEUE_ENABLE",
        "level",
        "1",
        "Operators are queued in two levels at 2, which is for eager execution; engines capture graphs and need 1.",
        "2",
        "1",
        Whole(0, 2),
    ),
    Variable(
        "PYTORCH_NPU_ALLOC_CONF",
        "key:value",
        "empty",
        "expandable_segments:True means less fragmentation under micro-batches of varying lengths; an engine that can "
        "sleep has a memory pool of its own and refuses to start with it.",
        "expandable_segments:True",
        "",
    ),
    Variable(
        "MULTI_STREAM_MEMORY_REUSE",
        "0 or 1",
        "1",
        "Lets streams reuse each other's memory.",
        value=Whole(0, 3),
    ),
    Variable("COMBINED_ENABLE", "0 or 1", "0", "Joins pairs of operators on non-contiguous tensors.", value=SWITCH),
    Variable(
        "CPU_AFFINITY_CONF",
        "mode, or cores per card",
        "0",
        "Binds processes to the cores near their card: 1 coarse, 2 fine.",
    ),
)
VLLM_ASCEND = (
    Variable(
        "VLLM_ASCEND_ENABLE_NZ",
        "level",
        "1",
        "Weights in the FRACTAL_NZ layout cannot be written in place, which every update of the weights does.",
        generation="0",
        value=Whole(0, 2),
    ),
)
CANN = (
    Variable(
        "ASCEND_GLOBAL_LOG_LEVEL",
        "level",
        "3",
        "0 debug, 1 info, 2 warning, 3 error, 4 nothing; below 3 logging slows everything.",
        value=Whole(0, 4),
    ),
    Variable(
        "ASCEND_SLOG_PRINT_TO_STDOUT",
        "0 or 1",
        "0",
        "Prints CANN's log instead of writing it to ~/ascend/log.",
        value=SWITCH,
    ),
    Variable("ASDOPS_LOG_LEVEL", "level", "ERROR", "Log level of the operator library.", value=LOG_LEVEL),
    Variable("ATB_LOG_LEVEL", "level", "ERROR", "Log level of the transformer library.", value=LOG_LEVEL),
    Variable(
        "ASCEND_LAUNCH_BLOCKING",
        "0 or 1",
        "0",
        "1 waits after each operator, to find the one that fails: slow, and it switches TASK_QUEUE_ENABLE off.",
        value=SWITCH,
    ),
    Variable(
        "ACL_OP_COMPILER_CACHE_MODE",
        "mode",
        "enable",
        "Keeps compiled operators, so that only the first request ever made is slow.",
        value=OneOf(("enable", "disable", "force")),
    ),
    Variable("ACL_OP_COMPILER_CACHE_DIR", "folder", "~/atc_data", "Where compiled operators are kept."),
    Variable(
        "ASCEND_MAX_OP_CACHE_SIZE",
        "MB",
        "500",
        "Size of that cache; what does not fit is compiled again. -1 has no limit.",
    ),
    Variable(
        "ACL_PRECISION_MODE",
        "mode",
        "the operator's",
        "Lets operators without fp32 compute in fp16.",
    ),
)
HOST = (
    _everywhere(
        "OMP_NUM_THREADS",
        "threads",
        "all cores",
        "1",
        "Several workers share the host's cores; a pool of threads in each makes every one of them slower.",
        Whole(1, 4096),
    ),
    _everywhere(
        "TOKENIZERS_PARALLELISM",
        "true or false",
        "true",
        "false",
        "The same for tokenizers' own threads, which also warn at every fork.",
    ),
)
VARIABLES = {variable.name: variable for variable in (*HCCL, *TORCH_NPU, *VLLM_ASCEND, *CANN, *HOST)}

READ_BY_NOBODY = {
    "NPU_MEMORY_FRACTION": "gpu_memory_utilization in the engine's strategy_config",
    "VLLM_ASCEND_ENABLE_FLASHCOMM": "additional_config: {enable_flashcomm1: true}",
    "VLLM_ASCEND_ENABLE_PREFETCH_MLP": "additional_config: {weight_prefetch_config: {enabled: true}}",
    "VLLM_ASCEND_ENABLE_TOPK_OPTIMIZE": "",
    "VLLM_ASCEND_MODEL_EXECUTE_TIME_OBSERVE": "",
    "VLLM_ASCEND_TRACE_RECOMPILES": "",
    "VLLM_ATTENTION_BACKEND": "",
    "VLLM_ENABLE_MC2": "",
    "VLLM_USE_V1": "",
}
"""Variables that guides recommend and that none of torch_npu 2.10.0.post4, vLLM 0.23.0 and vLLM-Ascend 0.23.0rc1 reads,
each with the option that does what was meant, where there is one."""

GENERATING_ROLES = frozenset({"actor_infer", "student_infer"})
REWARD_PREFIX = "reward"
"""Rewards that judge by a model hold an engine; to others the difference is nothing."""


def training_environment() -> dict[str, str]:
    """What workers that train or score get."""
    return {name: one.training for name, one in VARIABLES.items() if one.training is not None}


def generation_environment() -> dict[str, str]:
    """What every process of an engine gets, whatever started it."""
    return {name: one.generation for name, one in VARIABLES.items() if one.generation is not None}


def role_environment(role: str) -> dict[str, str]:
    """What a role's workers get."""
    generates = role in GENERATING_ROLES or role.startswith(REWARD_PREFIX)
    return generation_environment() if generates else training_environment()
