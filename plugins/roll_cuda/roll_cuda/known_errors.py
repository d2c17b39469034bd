"""Errors that users of GPUs meet, with cause and remedy."""

from roll_core.findings import KnownError

COMMON = (
    KnownError(
        (r"(CUDA|HIP) out of memory", r"torch\.(cuda\.)?OutOfMemoryError", r"(CUDA|HIP) error: out of memory"),
        "The device's memory is full. Where roles share devices, the engine's share comes on top of the trainer's.",
        "Lower gpu_memory_utilization of the engine, per_device_train_batch_size or infer_batch_size; "
        "offload_policy: true keeps weights and optimiser on the host.",
    ),
    KnownError(
        (r"Expandable segments are not compatible with memory pool", r"expandable_segments.*(sleep|cumem|pool)"),
        "An engine that sleeps has a memory pool of its own, which excludes expandable segments.",
        "Unset PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and PYTORCH_ALLOC_CONF, in system_envs too: workers "
        "that train get expandable segments anyway, engines do not.",
    ),
    KnownError(
        (r"invalid device ordinal",),
        "A process asked for a device beyond those it can see.",
        "Look at CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES in `roll doctor`; device_mapping counts within that list.",
    ),
    KnownError(
        (r"flash_attn.*undefined symbol", r"undefined symbol.*flash_attn"),
        "The package flash_attn was built for another torch.",
        "Install it again without a cached wheel (pip install --no-cache-dir --no-build-isolation flash-attn), or "
        "attn_implementation: sdpa, which needs no package.",
    ),
    KnownError(
        (r"FlashAttention2 has been toggled on, but it cannot be used", r"No module named 'flash_attn'"),
        "attn_implementation asks for flash_attention_2, and the package flash_attn is not installed.",
        "attn_implementation: sdpa, or pip install flash-attn --no-build-isolation.",
    ),
    KnownError(
        (r"Watchdog caught collective operation timeout", r"ProcessGroupNCCL.*(timeout|timed out)"),
        "A rank waited in a collective for a peer that died, is slower than the timeout, or ran another collective.",
        "Find the first rank that failed: the others report only that they waited. Longer: backend_timeout.",
    ),
    KnownError(
        (r"(NCCL|RCCL).*unhandled system error", r"ncclSystemError"),
        "Ranks cannot reach each other, most often through too little shared memory or the wrong interface.",
        "Start containers with --ipc=host or --shm-size=16g, and set NCCL_SOCKET_IFNAME to the network of the nodes; "
        "NCCL_DEBUG=INFO says which call failed.",
    ),
    KnownError(
        (r"Duplicate GPU detected",),
        "Two ranks of one group are on the same device, which NCCL and RCCL refuse.",
        "Give each rank a device of its own in device_mapping.",
    ),
    KnownError(
        (r"Cannot re-initialize CUDA in forked subprocess",),
        "A process was forked after it had used the device.",
        "Use the device only after the process was started, or start it with spawn "
        "(VLLM_WORKER_MULTIPROC_METHOD=spawn).",
    ),
)
CUDA = (
    KnownError(
        (r"Torch not compiled with CUDA enabled", r"Found no NVIDIA driver on your system"),
        "The installed torch is not built for CUDA, or no driver is there.",
        "Look at `roll doctor --platform cuda`: it names the build and the driver.",
    ),
    KnownError(
        (r"CUDA driver version is insufficient", r"NVIDIA driver on your system is too old"),
        "torch is built for a newer CUDA than the host's driver knows.",
        "A newer driver on the host, or a torch built for an older CUDA.",
    ),
    KnownError(
        (r"no kernel image is available for execution",),
        "torch, or a package with kernels, is not built for this generation of devices.",
        "Install a build that lists the device's compute capability; torch.cuda.get_arch_list() shows those of torch.",
    ),
    KnownError(
        (r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|Error 802",),
        "On hosts with an NVLink switch the fabric manager is not running, or is of another version than the driver.",
        "systemctl start nvidia-fabricmanager on the host, in the driver's version.",
    ),
)
ROCM = (
    KnownError(
        (r"hipErrorNoBinaryForGpu", r"invalid device function"),
        "torch, or a package with kernels, is not built for this generation of devices.",
        "Install a build that lists the device's gfx number; torch.cuda.get_arch_list() shows those of torch.",
    ),
    KnownError(
        (r"No HIP GPUs are available", r"Unable to open /dev/kfd"),
        "The device files cannot be opened by this user, or are hidden.",
        "Start containers with --device /dev/kfd --device /dev/dri --group-add video --group-add render.",
    ),
)
