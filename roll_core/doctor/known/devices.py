"""Devices: too little of their memory, wrong numbers, wrong types."""

from roll_core.findings import KnownError

DEVICE_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"out of memory\. tried to allocate",
            r"torch\.OutOfMemoryError",
            r"\w+ out of memory\b(?!: killed)",
            r"OutOfMemoryError: \w+ out of memory",
        ),
        "the device's memory is full: weights, gradients, optimiser, activations and the engine's cache together",
        "offload_policy: true in the fsdp2 strategy_config; per_device_train_batch_size: 1 with "
        "gradient_accumulation_steps raised alike; a smaller max_model_len or gpu_memory_utilization of the "
        "engine; more devices in device_mapping. `roll check` estimates each role's share",
    ),
    KnownError(
        (
            r"invalid device (ordinal|id)",
            r"device '.+' is not visible",
            r"only \d+ devices are visible",
            r"device .{0,20}out of range",
            r"set_device.{0,60}invalid",
        ),
        "a device number that this process does not have: numbers count the visible devices from 0, whatever "
        "their own ids",
        "device_mapping from 0 to the number of visible devices - 1; `roll doctor` shows the list that hides devices",
    ),
    KnownError(
        (r"two lists of visible devices differ",),
        "two variables that both limit the visible devices say different things",
        "unset one of them, or set both alike",
    ),
    KnownError(
        (r"expected all tensors to be on the same device", r"found at least two devices"),
        "code of a reward, a patch or a model made a tensor on another device than the rest, such as the first one",
        "tensors made with device=other.device; a bare device name without an index means the first visible device",
    ),
    KnownError(
        (r"only one platform plugin can be activated", r"\d+ platforms can be used here"),
        "several platforms fit this machine, and nothing says which is meant",
        "`platform: <name>` in the config, or ROLL_PLATFORM=<name>",
    ),
    KnownError(
        (r"there is an accelerator here that no loaded plugin can use", r"no platform named"),
        "the plugin of that device is not installed, or failed to load",
        "`roll plugins -v` shows what is installed and what failed; then the pip command of the message",
    ),
    KnownError(
        (
            r"not implemented for '(Half|BFloat16)'",
            r"not implemented for \"(Half|BFloat16)\"",
            r"does not support (bf16|bfloat16|fp16|half)",
        ),
        "an operator does not know that number format on this device",
        "model_args.dtype: fp32 (and param_dtype, reduce_dtype) on plain processors; bf16 on accelerators",
    ),
)
