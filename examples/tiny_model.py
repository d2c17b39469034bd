"""A tokenizer and an untrained model of about 160 thousand parameters, made in place: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# Digits, signs and line ends stay tokens of their own; words become whole tokens.
_SPLIT = r" ?[A-Z]?[a-z]+| ?[A-Z]|\d|\n| ?[^\sA-Za-z\d] ?|\s"

# The end-of-turn token is inside the generation block, so that a loss mask made from it trains the model to stop.
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{{ '<|im_start|>assistant\n' }}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{{ '\n' }}"
    "{% else %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer(
    samples: Sequence[str], *, split: str = _SPLIT, template: str = _CHAT_TEMPLATE, further_tokens: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of at most 400 tokens that encodes any text, learnt from samples of the task.

    Args:
        split: the pattern of texts that no token reaches beyond.
        template: of chats.
        further_tokens: special ones, beside those for padding and for the turns of a chat.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[PAD, START, END, *further_tokens],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(samples, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        padding_side="left",
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = template
    return wrapped


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A model of Qwen3's kind with two small layers. Seed torch before, as its weights are random.

    Heads are 32 wide, the smallest that inference engines on a CPU accept. The rotary base is 500 rather than 10000:
    sequences have 70 tokens, and with the large base some seeds fail to learn to copy the middle digit.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    rope_theta = 500.0
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=2048,
        # transformers 4 reads the first of these two, transformers 5 the second.
        rope_theta=rope_theta,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        initializer_range=0.08,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)
