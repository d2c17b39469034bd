#!/usr/bin/env bash
# Runs the 30B example on one node with 16 devices. Further key=value arguments are handed on.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Several processes share a device; without a range of ports of its own the second one finds the port taken.
export HCCL_NPU_SOCKET_PORT_RANGE="${HCCL_NPU_SOCKET_PORT_RANGE:-auto}"
# Weights are replaced while the engine runs, which its private weight layout does not allow.
export VLLM_ASCEND_ENABLE_NZ="${VLLM_ASCEND_ENABLE_NZ:-0}"

exec python examples/start_rlvr_pipeline.py --config_path ascend_examples --config_name qwen3_30b_rlvr_fsdp2 "$@"
