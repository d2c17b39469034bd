"""A role's model on this rank: built, read out as full tensors, and moved between device and host."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from roll_core.training import model as models
from roll_core.training.fsdp2_config import Fsdp2Config
from roll_core.training.model_args import dtype_of
from roll_core.training.patches import apply_patches
from roll_core.training.process_group import mesh
from roll_core.training.shard import fill, reshard, shard, sharded_units
from roll_core.training.shared_prompts import why_not_shared
from roll_core.training.vision import blank_image, reads_images

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.context import WorkerContext
    from roll_core.platforms import Platform

log = logging.getLogger(__name__)


class ShardedModel:
    """The model of one role; `module` is called like any transformers model.

    A model that is trained keeps its weights in float32, because steps of a small learning rate vanish in less,
    and computes in `compute_dtype`. One that only scores keeps them in `compute_dtype`.
    """

    def __init__(
        self, role: WorkerConfig, platform: Platform, context: WorkerContext, config: Fsdp2Config, is_training: bool
    ) -> None:
        self.device = platform.device(0)
        self.config = config
        self.compute_dtype = dtype_of(config.param_dtype or role.model_args.dtype)
        stored_dtype = torch.float32 if is_training else self.compute_dtype
        # One rank needs no sharding, and the hooks of FSDP2 cost 8 to 26 % of a training step on a model of
        # 64 x 2 layers. It still brings mixed precision and offloading where they are asked for.
        self.is_sharded = context.world_size > 1 or stored_dtype != self.compute_dtype or config.offload_policy
        torch.manual_seed(context.seed)
        model_config = models.read_config(role, platform)
        self.module: Any = self._load(role, model_config, stored_dtype)
        self.class_name = type(self.module).__name__
        apply_patches(self.module, config, platform)
        if is_training:
            models.freeze(self.module, role.model_args.freeze_module_prefix)
            if not role.model_args.disable_gradient_checkpointing:
                models.recompute_activations(self.module, role.model_args.gradient_checkpointing_use_reentrant)
        else:
            self.module.requires_grad_(False)
        if self.is_sharded:
            self._shard(platform, context)
        else:
            self.module.to(self.device)
        # Likewise of what reads images, which ranks whose rows have none would leave out.
        needs_image = self.is_sharded and reads_images(model_config)
        self.blank = blank_image(model_config, self.device) if needs_image else None
        # Sharded, ranks would gather weights for different numbers of passes.
        against = "the model is sharded" if self.is_sharded else why_not_shared(self.module, self.device)
        self.shares_prompts = against is None
        log.info("%s: %s", context.role, f"whole rows are read: {against}" if against else "prompts are read once")
        torch.manual_seed(context.seed + context.rank)

    def _load(self, role: WorkerConfig, config: Any, dtype: torch.dtype) -> nn.Module:
        self.is_sent = False
        if self.is_sharded and dist.get_world_size() > 1:
            empty = models.outline(role, config, dtype)
            # Empty modules that are given memory one by one lose the tie between their weights.
            self.is_sent = not models.is_tied(empty)
            if self.is_sent and dist.get_rank() > 0:
                return empty
        return models.load(role, config, dtype)

    def _shard(self, platform: Platform, context: WorkerContext) -> None:
        full: dict[str, torch.Tensor] = {}
        if self.is_sent and context.rank == 0:
            full = {name: parameter.detach() for name, parameter in self.module.named_parameters()}
        ranks = mesh(platform, context.world_size, self.config.fsdp_size)
        shard(self.module, ranks, self.config, self.compute_dtype)
        if self.is_sent:
            fill(self.module, full, self.device, self.config.offload_policy)

    def expect_backward(self, *, is_last: bool) -> None:
        """Announce a backward pass: until the last one of a step, gradients may stay on their rank."""
        if not self.is_sharded:
            return
        for unit in sharded_units(self.module):
            if not self.config.reduce_scatter_during_grad_accumulation:
                unit.set_requires_gradient_sync(is_last, recurse=False)
            unit.set_requires_all_reduce(is_last, recurse=False)
            unit.set_is_last_backward(is_last)

    def reshard(self) -> None:
        """Free gathered weights."""
        if self.is_sharded:
            reshard(self.module)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and saved buffers by the model's own names, this rank's part of each; tied ones by each name."""
        self.reshard()
        return dict(self.module.state_dict())

    def full_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole tensors on the device in the precision the model computes in, as named in a model folder."""
        for name, tensor in self.tensors().items():
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            whole = whole.detach().to(self.device)
            if whole.is_floating_point():
                whole = whole.to(self.compute_dtype)
            yield from models.under_checkpoint_names(self.module, name, whole)

    def weights(self, bucket_bytes: int) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """`full_tensors` in buckets of at most `bucket_bytes`, or of one tensor that is larger."""
        bucket: list[tuple[str, torch.Tensor]] = []
        size = 0
        for name, tensor in self.full_tensors():
            if bucket and size + tensor.nbytes > bucket_bytes:
                yield bucket
                bucket, size = [], 0
            bucket.append((name, tensor))
            size += tensor.nbytes
        if bucket:
            yield bucket

    def move(self, device: torch.device) -> None:
        """Move weights and gradients; nothing where an offload policy keeps them on the host anyway."""
        if self.config.offload_policy:
            return
        self.reshard()
        self.module.to(device)
