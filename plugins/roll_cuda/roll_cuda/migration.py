"""What changes when a config written for other devices runs on GPUs."""

from roll_core.migration import Migration, RefusedOption

MIGRATION = Migration(
    options=(
        RefusedOption("online_quantization", "quantises for NPUs", "ascend"),
        RefusedOption("online_quantization_config", "belongs to a quantisation for NPUs"),
        RefusedOption("additional_config", "is read by vLLM-Ascend only"),
    ),
)
