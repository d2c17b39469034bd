"""A dialogue with a tokenizer of one token per byte, made in place."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from roll_core.rollout.env_dialogue import Dialogue


def byte_dialogue() -> Dialogue:
    """In ChatML, with the two special tokens that it needs."""
    special = ["<|im_start|>", "<|im_end|>"]
    vocabulary = {token: index for index, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    inner = Tokenizer(models.BPE(vocabulary, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(special)
    return Dialogue(PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>"), "chatml")
