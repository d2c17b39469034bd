"""A model of the Qwen2.5-VL kind with 150 thousand parameters, its tokenizer and image processor, made in place.

Nothing is downloaded. The image processor's settings are those that fit the model's patches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import tiny_model

IMAGE_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
PATCH, MERGE = 7, 2

# Words become whole tokens, so that the name of a colour is one.
_SPLIT = r" ?[A-Za-z]+|\d|\n| ?[^\sA-Za-z\d] ?|\s"

_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer(samples: Sequence[str]) -> Any:
    """The quickstart's byte-level tokenizer, with the tokens that stand for images."""
    return tiny_model.make_tokenizer(samples, split=_SPLIT, template=_CHAT_TEMPLATE, further_tokens=IMAGE_TOKENS)


def make_model(tokenizer: Any) -> Any:
    """Two layers of language over two layers of vision. Seed torch before, as its weights are random."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    start, end, image, video = tokenizer.convert_tokens_to_ids(IMAGE_TOKENS)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [4, 6, 6]},
            "initializer_range": 0.08,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 1,
            "window_size": 4 * PATCH * MERGE,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
            "initializer_range": 0.08,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=True,
    )
    return Qwen2_5_VLForConditionalGeneration(config)


def write_image_processor(folder: Path) -> None:
    """Say how the model reads images: patches of 7 x 7 pixels, and images no smaller or larger than it learnt."""
    cell = PATCH * MERGE
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 1,
        "size": {"shortest_edge": cell * cell, "longest_edge": 16 * cell * cell},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.25, 0.25, 0.25],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")
