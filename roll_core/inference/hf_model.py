"""A transformers model for generation: loading, which tokens end a text, and its decoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from roll_core.data.vision import Vision
from roll_core.errors import BadRequest, ConfigError, Problem, RollError
from roll_core.inference.base import GenerationRequest
from roll_core.inference.compact import CompactDecoder
from roll_core.inference.compact_model import why_not_compact
from roll_core.inference.decoder import Decoder, Features
from roll_core.inference.end_tokens import end_tokens, has_tokenizer
from roll_core.inference.hf_config import CONFIG_PATH, HfInferConfig
from roll_core.inference.transformers_decoder import TransformersDecoder, why_not_transformers
from roll_core.training.model_args import attention_of, dtype_of
from roll_core.training.vision import language_model_class

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform


class HfModel:
    """The model of a role, on a device, in evaluation mode. `choice` says which decoder computes it, and why."""

    def __init__(self, role: WorkerConfig, platform: Platform, settings: HfInferConfig) -> None:
        from transformers import AutoConfig

        arguments = role.model_args
        if arguments.model_name_or_path is None:
            raise ConfigError([Problem("model_args.model_name_or_path", "hf_infer needs a model folder")])
        self.path = arguments.model_name_or_path
        self.device = platform.device(0)
        options: dict[str, Any] = {
            "dtype": dtype_of(arguments.dtype),
            "attn_implementation": attention_of(role, platform),
        }
        config = AutoConfig.from_pretrained(self.path, **arguments.model_config_kwargs)
        auto_class = language_model_class(config)
        if settings.load_format == "dummy":
            model = auto_class.from_config(config, **options)
        else:
            model = auto_class.from_pretrained(self.path, config=config, **options)
        self.module: nn.Module = model.to(self.device).eval().requires_grad_(False)
        self.is_compact, self.choice = _choose(self.module, settings.decoder)

    @property
    def max_length(self) -> int | None:
        """The longest text the model was built for, in tokens."""
        config: Any = self.module.config
        return getattr(config.get_text_config(), "max_position_embeddings", None)

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        own = self.tokenizer().eos_token_id if self.has_tokenizer else None
        return end_tokens(self.path, self.module.config, own)

    def tokenizer(self) -> Any:
        """The tokenizer of the model's folder, loaded when it is first asked for.

        Raises:
            BadRequest: there is none; it is asked for by requests with stop strings.
        """
        if not self.has_tokenizer:
            raise BadRequest(f"stop strings need a tokenizer, and there is none in {self.path}")
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """Whether the model's folder has a tokenizer too."""
        return has_tokenizer(self.path)

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.path)

    def read_images(self, requests: Sequence[GenerationRequest]) -> dict[str, Features]:
        """What the model reads of the images of requests, by request id; of each prompt's images once.

        Raises:
            BadRequest: images for a model that reads none, or other image tokens than the images have.
        """
        read: dict[int, Features] = {}
        for request in requests:
            if request.images is not None and id(request.images) not in read:
                read[id(request.images)] = self._features(request)
        return {one.request_id: read[id(one.images)] for one in requests if one.images is not None}

    def _features(self, request: GenerationRequest) -> Features:
        assert request.images is not None
        try:
            features = self._vision.features(request.images.encoded)
        except (OSError, RollError) as error:
            raise BadRequest(f"request '{request.request_id}': its images cannot be read: {error}") from error
        expected = sum(self._vision.num_tokens(features))
        found = request.prompt_ids.count(self._vision.image_token)
        if found != expected:
            raise BadRequest(
                f"request '{request.request_id}' has {found} image tokens, and its images are {expected} tokens"
            )
        return {name: torch.from_numpy(array).to(self.device) for name, array in features.items()}

    @cached_property
    def _vision(self) -> Vision:
        return Vision(self.path)

    def decoder(self) -> Decoder:
        """A new decoder of the kind chosen."""
        return CompactDecoder(self.module) if self.is_compact else TransformersDecoder(self.module)


def _choose(model: nn.Module, asked: str) -> tuple[bool, str]:
    """Whether the compact decoder computes the model, and a line that says so and why.

    Raises:
        ConfigError: the decoder that is asked for cannot compute this model.
    """
    name, against_compact = type(model).__name__, why_not_compact(model)
    if asked == "compact" and against_compact is not None:
        rule = f"the compact decoder does not fit: {against_compact}"
        raise ConfigError([Problem(f"{CONFIG_PATH}.decoder", rule, "compact", "auto or transformers")])
    if asked != "transformers" and against_compact is None:
        return True, f"{name} is computed by the compact decoder"
    against_transformers = why_not_transformers(model)
    if against_transformers is not None:
        hint = "another inference strategy, such as vllm"
        raise ConfigError([Problem("strategy_args.strategy_name", against_transformers, "hf_infer", hint)])
    reason = f"; not by the compact one: {against_compact}" if asked == "auto" else ""
    return False, f"{name} is computed by the transformers decoder{reason}"
