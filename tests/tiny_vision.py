"""A tiny model that reads images, its tokenizer and its image processor, made in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

IMAGE_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
PATCH, MERGE = 7, 2
CELL = PATCH * MERGE
"""An image token stands for so many pixels in either direction."""

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer() -> Any:
    """Bytes, the tokens of a chat, and those that stand for images; with a chat template of its own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: number for number, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *IMAGE_TOKENS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    wrapped.chat_template = _CHAT_TEMPLATE
    return wrapped


def make_model(tokenizer: Any, family: str = "qwen2_5_vl") -> Any:
    """A model of a Qwen-VL family with two small layers over a vision tower of two. Seed torch before."""
    import transformers

    start, end, image, video = tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [4, 6, 6]},
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": True,
    }
    vision: dict[str, Any] = {
        "depth": 2,
        "num_heads": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 1,
        "initializer_range": 0.2,
    }
    if family == "qwen2_vl":
        vision |= {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}
    elif family == "qwen2_5_vl":
        vision |= {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": 64, "window_size": 2 * CELL}
        vision |= {"fullatt_block_indexes": [1]}
    else:
        vision |= {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": 64, "num_position_embeddings": 64}
        vision |= {"deepstack_visual_indexes": [0]}
    prefix = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[family]
    if family != "qwen3_vl":
        del text["head_dim"]
    config = getattr(transformers, f"{prefix}Config")(
        text_config=text,
        vision_config=vision,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=True,
    )
    return getattr(transformers, f"{prefix}ForConditionalGeneration")(config)


def write_model(folder: Path, family: str = "qwen2_5_vl", seed: int = 0) -> None:
    """Write model, tokenizer and image processor as a folder in Hugging Face format."""
    import json

    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    make_model(tokenizer, family).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 1,
        "size": {"shortest_edge": CELL * CELL, "longest_edge": 64 * CELL * CELL},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
