"""A pretend machine with NPUs, for tests: torch device `npu` on host memory, collective backend `hccl` around gloo."""
