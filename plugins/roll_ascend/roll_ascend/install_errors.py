"""Errors from what is installed: the container, CANN, and packages that do not fit together."""

from roll_ascend.cann import SOURCE
from roll_ascend.versions import GUIDE, REINSTALL_TRITON
from roll_core.findings import KnownError

INSTALL_ERRORS = (
    KnownError(
        (
            r"dcmi (module )?initialize failed",
            r"npu-smi.*(not found|no such file)",
            r"drvErr\w*.*device",
            r"no device file /dev/davinci",
        ),
        "The container sees no card: device files, management devices or the host's driver are not mounted.",
        "docker run with --device for every /dev/davinciN, /dev/davinci_manager, /dev/devmm_svm and /dev/hisi_hdc, and "
        "-v for /usr/local/Ascend/driver, /usr/local/Ascend/add-ons, /usr/local/dcmi, /usr/local/bin/npu-smi and "
        "/etc/ascend_install.info; npu-smi info must work on the host first.",
    ),
    KnownError(
        (r"libascend_hal\.so",),
        "torch_npu is installed on a machine without the driver: a head node, or a container without its mounts.",
        "Mount /usr/local/Ascend/driver and the device files, or run this machine as `platform: cpu`.",
    ),
    KnownError(
        (
            r"lib(ascendcl|hccl|atb|opapi|ge_runner|runtime|nnopbase|asdops)\.so",
            r"No module named '?(tbe|te_fusion|acl)\b",
            r"ASCEND_OPP_PATH.*(not|null|invalid)",
            r"(cannot import|failed to import).*vllm_ascend",
            r"No module named '?vllm_ascend",
        ),
        "CANN was not sourced in the shell that started this process. Images do it in /root/.bashrc, which other "
        "users, ssh commands and schedulers do not read.",
        SOURCE,
    ),
    KnownError(
        (
            r"module 'torch' has no attribute 'npu'",
            r"PrivateUse1.*(not|isn't) (available|registered)",
            r"torch\.npu\.is_available\(\).*False",
        ),
        "torch_npu is not imported, not installed, or not of torch's release.",
        "pip list | grep torch: torch-npu's version begins with torch's; then source CANN and look at npu-smi info.",
    ),
    KnownError(
        (r"undefined symbol: .*(c10|torch|at[0-9])", r"torch-npu .*requires torch", r"vllm .*requires torch=="),
        "Installing one package replaced torch under another that was built against its old release.",
        f"After vllm and vllm-ascend install torch {GUIDE.versions['torch']} and torch-npu "
        f"{GUIDE.versions['torch-npu']}, the latter with --no-deps.",
    ),
    KnownError(
        (
            r"Current device type: .*does not match the installed version's device type",
            r"SOC_VERSION.*not support",
            r"Can ?not support soc_version",
            r"Ascend device not found",
        ),
        "vllm-ascend was built for another chip; the packages on PyPI are for Atlas A2.",
        "Use the image of this hardware (Dockerfile.A2 for ascend910b1, Dockerfile.A3 for ascend910_9391), or build "
        "vllm-ascend with that SOC_VERSION.",
    ),
    KnownError(
        (
            r"No module named '?triton",
            r"cannot import name .* from '?triton",
            r"module 'triton' has no attribute",
            r"triton.*0 active drivers",
            r"partially initialized module 'triton'",
        ),
        "triton and triton-ascend install into one folder; xgrammar brings triton back on x86, and removing it damages "
        "triton-ascend.",
        REINSTALL_TRITON,
    ),
    KnownError(
        (r"No module named '?flash_attn", r"FlashAttention2? .*(flash_attn|toggled on)", r"flash_attn_2_cuda"),
        "Something asks for the package flash_attn, which has no kernels for NPUs.",
        "attn_implementation: fa2, which uses transformers' own for NPUs; pip uninstall flash_attn.",
    ),
    KnownError(
        (r"310P\d?.*(triton|not support)", r"triton.*310P"),
        "Atlas 310P boards do not run triton-ascend, and are not validated here.",
        "Use Atlas A2 or A3.",
    ),
    KnownError(
        (r"invalid reference format",),
        "A space after the colon of the image's name, as one published docker pull line has it.",
        "docker pull quay.io/ascend/roll:main-a2, or :main-a3, in one word.",
    ),
    KnownError(
        (r"source: not found",),
        "docker build ran `source` in sh.",
        'SHELL ["/bin/bash", "-c"] before the first RUN that sources set_env.sh.',
    ),
)
