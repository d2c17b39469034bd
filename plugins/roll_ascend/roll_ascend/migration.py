"""What changes when a config written for other devices runs on NPUs: the guide's checklist as data."""

from roll_core.migration import Migration, ModelFamily, RefusedOption

NO_FP8 = "Atlas A2 and A3 do not compute in FP8; weights stay in bf16"
OWN_ATTENTION = "vLLM-Ascend brings its own attention"

MIGRATION = Migration(
    strategies={
        "megatron_train": "fsdp2_train",
        "megatron_infer": "fsdp2_infer",
        "deepspeed_train": "fsdp2_train",
        "deepspeed_infer": "fsdp2_infer",
        "veomni_train": "fsdp2_train",
        "veomni_infer": "fsdp2_infer",
    },
    engines={"sglang": "vllm"},
    attention="fa2",
    attention_reason="transformers' own flash attention for NPUs; the package flash_attn is for other devices",
    options=(
        RefusedOption("quantization", NO_FP8, "fp8"),
        RefusedOption("kv_cache_dtype", NO_FP8, "^fp8"),
        RefusedOption("online_quantization", NO_FP8, "fp8"),
        RefusedOption("online_quantization_config", NO_FP8),
        RefusedOption("attention_backend", OWN_ATTENTION),
        RefusedOption("attention_config", OWN_ATTENTION),
    ),
    families=(
        ModelFamily(
            name=r"qwen3-(?:coder-)?\d+b-?a\d+b",
            reason="experts are sharded one by one, so every rank must run all of them; long rows are cut into tiles",
            training={
                "apply_expert_patch": True,
                "wrap_policy": {
                    "wrap_embeddings": True,
                    "wrap_lm_output": True,
                    "moe_experts": ["Qwen3MoeMLP"],
                    "transformer_layer_cls_to_wrap": ["Qwen3MoeAttention", "Qwen3MoeSparseMoeBlock"],
                },
            },
            every_role={"apply_tiled_mlp": True, "tiled_num_shards": 8},
        ),
    ),
    variables={
        "VLLM_ATTENTION_BACKEND": OWN_ATTENTION,
        "VLLM_FLASH_ATTN_VERSION": OWN_ATTENTION,
        "VLLM_USE_FLASHINFER_SAMPLER": "FlashInfer has no kernels for NPUs",
        "TORCH_CUDA_ARCH_LIST": "kernels for NPUs are built for the chip in SOC_VERSION",
    },
    judge_needs_own_devices=True,
)
