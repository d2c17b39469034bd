"""Errors while it runs: memory, devices, engines, weights."""

from roll_core.findings import KnownError

RUN_ERRORS = (
    KnownError(
        (r"FRACTAL_NZ",),
        "The engine keeps weights in the FRACTAL_NZ layout, which cannot be written in place when weights are updated.",
        "VLLM_ASCEND_ENABLE_NZ=0 for engines, which they get unless somebody sets it: look at system_envs and at the "
        "shell.",
    ),
    KnownError(
        (r"Expandable segments are not compatible with memory pool",),
        "An engine that can sleep found PYTORCH_NPU_ALLOC_CONF=expandable_segments:True.",
        "Set it in actor_train.system_envs alone, or nowhere: workers that train get it anyway.",
    ),
    KnownError(
        (r"ACL ?graph is incompatible with ASCEND_LAUNCH_BLOCKING",),
        "vLLM-Ascend captures graphs, and ASCEND_LAUNCH_BLOCKING=1 forbids that.",
        "Unset ASCEND_LAUNCH_BLOCKING, or enforce_eager: true in the engine's strategy_config.",
    ),
    KnownError(
        (r"NPU out of memory", r"EL0004", r"aclrtMalloc.*fail", r"207001"),
        "The card's memory is full.",
        "offload_policy: true for fsdp2_train; per_device_train_batch_size: 1 and gradient_accumulation_steps larger "
        "by as much; apply_tiled_mlp: true; a smaller max_model_len or gpu_memory_utilization for the engine; fewer "
        "prompts in rollout_batch_size.",
    ),
    KnownError(
        (r"No module named '?megatron", r"megatron_(train|infer)\b", r"strategy megatron"),
        "Megatron is not available on NPUs; training and scoring are done by FSDP2.",
        "strategy_name: fsdp2_train (fsdp2_infer for the reference), with FSDP2's strategy_config in place of "
        "tensor_model_parallel_size and its like.",
    ),
    KnownError(
        (
            r"invalid device (id|ordinal)",
            r"107001",
            r"Invalid device ID",
            r"device_id.*should be in range",
        ),
        "A card was named by its number on the host; inside a process cards count from 0 within "
        "ASCEND_RT_VISIBLE_DEVICES.",
        "device_mapping counts within the visible cards: with ASCEND_RT_VISIBLE_DEVICES=4,5 they are 0 and 1.",
    ),
    KnownError(
        (r"expected.*npu:\d+.*(got|was|but).*npu:\d+", r"tensors to be on the same device.*npu:"),
        "A worker saw several cards and put tensors on the first: RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES was "
        "set by hand, so nobody limited what it sees.",
        "Unset it: workers get it together with their own ASCEND_RT_VISIBLE_DEVICES.",
    ),
    KnownError(
        (r"local (rank )?range.*base", r"local_rank \d+ .*out of (bounds|range)"),
        "Ranks of the second node were taken for cards of the first.",
        "num_gpus_per_node must be the cards of one node; device_mapping counts on through the nodes.",
    ),
    KnownError(
        (r"(first|initial) (inference |generation )?request.*(slow|minutes)", r"AutoTune|compil\w+ operators?"),
        "The first request after loading compiles operators, once, for some minutes.",
        "Keep what is compiled: ACL_OP_COMPILER_CACHE_MODE=enable and ACL_OP_COMPILER_CACHE_DIR on a disk that stays.",
    ),
    KnownError(
        (r"(slow|low)\b.*(vllm|throughput|tokens/s)", r"throughput.*(slow|low)\b"),
        "Versions that do not fit, an engine of another chip, triton in place of triton-ascend, or settings for "
        "debugging.",
        "Look at the findings `version matrix`, `chip and image`, `triton` and `debugging`; then at "
        "gpu_memory_utilization and max_model_len.",
    ),
    KnownError(
        (r"(garbage|nonsense|fluent wrong|gibberish).*(wake|sleep|MoE)", r"(wake|sleep).*(garbage|gibberish)"),
        "Releases of vLLM-Ascend transposed the weights of mixture-of-experts models a second time when an engine "
        "woke (vllm-ascend issue 11548, fixed by its pull request 13012).",
        "sleep_level: 1, or devices of its own for the engine, so that it never sleeps.",
    ),
    KnownError(
        (r"NonTensorStack", r"nested.*npu|npu.*nested"),
        "Tensors on an NPU cannot be nested; a transport that tries turns them into objects.",
        "Move tensors to the CPU before they are put: tensor.cpu().",
    ),
)
