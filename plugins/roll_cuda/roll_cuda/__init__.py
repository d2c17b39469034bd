"""NVIDIA and AMD GPUs as platforms of roll-core."""
