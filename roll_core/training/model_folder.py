"""Writing a model as a folder in Hugging Face format, which any engine can load."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import torch
import torch.distributed as dist

from roll_core.training.sharded_model import ShardedModel

# What belongs to a tokenizer or a processor, whichever of it a model has.
_COMPANIONS = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.tiktoken",
    "sentencepiece*.model",
    "spiece.model",
    "chat_template*",
    "*preprocessor_config.json",
    "processor_config.json",
    "generation_config.json",
)


def write(path: Path, model: ShardedModel, source: Path) -> None:
    """Write config, weights and the companions found in `source`. Every rank takes part; rank 0 writes."""
    aliases = _aliases(model)
    collected: dict[str, torch.Tensor] = {}
    for name, tensor in model.full_tensors():
        if dist.get_rank() == 0 and name not in aliases:
            # A copy of its own: a gathered tensor may be a view of padded memory, which safetensors refuses.
            collected[name] = tensor.to("cpu", copy=True)
    if dist.get_rank() == 0:
        _write_config(path, model)
        _write_weights(path, collected)
        for pattern in _COMPANIONS:
            for file in source.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, path / file.name)
    dist.barrier()


def _aliases(model: ShardedModel) -> set[str]:
    """Second names of tied weights: a folder holds each weight once."""
    every = {name for name, _ in model.module.named_parameters(remove_duplicate=False)}
    return every - {name for name, _ in model.module.named_parameters()}


def _write_config(path: Path, model: ShardedModel) -> None:
    config = copy.deepcopy(model.module.config)
    config.architectures = [model.class_name]
    config.dtype = model.compute_dtype
    config.save_pretrained(path)


def _write_weights(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    from huggingface_hub import save_torch_state_dict

    save_torch_state_dict({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
