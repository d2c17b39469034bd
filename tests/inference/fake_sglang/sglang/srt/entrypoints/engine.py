"""SGLang's Engine as far as the strategy uses it: names, signatures, outputs, and what it does with wrong calls.

Faults are planted by a file `fault` in the model's folder: `refuses to start`, `skips norm` (the model's loading
passes over a tensor in silence), `lazy rank` (rank 1 gets nothing of an update).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from roll_core.inference import EngineState, GenerationRequest, SamplingParams
from sglang.srt.arg_groups.fields.model import Model
from tests.inference.models import ListReceiver, make_engine


@dataclass
class ReqState:
    """What the tokenizer manager knows of a request."""

    dispatched: bool = False
    abort_sent: bool = False


class TokenizerManager:
    """Knows the requests by their ids."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.context_len = engine, 1024
        self.rid_to_state: dict[str, ReqState] = {}

    def abort_request(self, rid: str = "", abort_all: bool = False) -> None:
        """Told of a request that was not handed on, it loses the abort and takes no second one. Ids are prefixes."""
        state = self.rid_to_state.get(rid)
        if state is None or state.abort_sent:
            return
        state.abort_sent = True
        if state.dispatched:
            self.engine.abort([name for name in self.rid_to_state if name.startswith(rid)])


class RankModel(torch.nn.Module):
    """A rank's model; loading passes over names it does not know."""

    def __init__(self, folder: Path, load_format: str) -> None:
        super().__init__()
        self.folder = folder
        self.inner = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        if load_format == "dummy":
            for value in self.inner.parameters():
                value.data.normal_()

    def load_weights(self, weights: Any) -> None:
        """Write into parameters by their names."""
        own = dict(self.inner.named_parameters())
        for name, tensor in weights:
            if name in own and not (name == "model.norm.weight" and fault_of(self.folder) == "skips norm"):
                own[name].data.copy_(tensor)


def fault_of(folder: Path) -> str:
    """The planted fault."""
    file = folder / "fault"
    return file.read_text() if file.is_file() else ""


class Engine:
    """Takes ServerArgs by name."""

    def __init__(self, **kwargs: Any) -> None:
        unknown = set(kwargs) - set(Model.__annotations__)
        if unknown:
            raise TypeError(f"Unexpected keyword argument {sorted(unknown)}")
        self.folder = Path(kwargs["model_path"])
        if fault_of(self.folder) == "refuses to start":
            raise RuntimeError("no kernels for this device")
        self.loop = asyncio.new_event_loop()
        self.tokenizer_manager = TokenizerManager(self)
        self.reads_seeds = kwargs["enable_deterministic_inference"]
        self.can_release = kwargs.get("enable_memory_saver", False)
        [self.loader] = kwargs["custom_weight_loader"]
        self.ranks = [RankModel(self.folder, kwargs["load_format"]) for _ in range(kwargs["tp_size"])]
        self.is_updating = False
        self.threads = ThreadPoolExecutor(512)
        self.scheduler = make_engine(self.folder)
        self.scheduler.start()
        # A child, as SGLang's schedulers are.
        self.child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        self._take()

    async def async_generate(
        self,
        prompt: Any = None,
        sampling_params: Any = None,
        input_ids: Any = None,
        return_logprob: bool = False,
        stream: bool = False,
        rid: str | None = None,
    ) -> dict[str, Any]:
        """One completion, once it is whole."""
        assert not stream and return_logprob and rid is not None
        assert rid not in self.tokenizer_manager.rid_to_state
        state = self.tokenizer_manager.rid_to_state[rid] = ReqState()
        await asyncio.sleep(0.01)
        request = GenerationRequest(rid, tuple(input_ids), self._params(sampling_params), self._seed(sampling_params))
        results = self.scheduler.generate([request])
        state.dispatched = True
        try:
            found = await self.loop.run_in_executor(self.threads, next, results)
        finally:
            del self.tokenizer_manager.rid_to_state[rid]
        reason = {"type": found.finish_reason, "message": "Aborted"}
        meta = {
            "id": rid,
            "finish_reason": reason if found.finish_reason == "abort" else {"type": found.finish_reason},
            "output_token_logprobs": [
                (value, token, None) for value, token in zip(found.log_probs, found.token_ids, strict=True)
            ],
        }
        return {"text": "", "output_ids": list(found.token_ids), "meta_info": meta}

    def _seed(self, sampling: dict[str, Any]) -> int:
        return sampling["sampling_seed"] if self.reads_seeds else int.from_bytes(os.urandom(4))

    @staticmethod
    def _params(sampling: dict[str, Any]) -> SamplingParams:
        return SamplingParams(
            sampling["max_new_tokens"],
            temperature=sampling["temperature"],
            top_p=sampling["top_p"],
            top_k=max(0, sampling["top_k"]),
            stop=tuple(sampling["stop"] or ()),
            stop_token_ids=() if sampling.get("ignore_eos") else tuple(sampling["stop_token_ids"] or ()),
        )

    def abort(self, rids: list[str]) -> None:
        """What the scheduler does when told."""
        self.threads.submit(self.scheduler.abort, rids)

    def flush_cache(self) -> Any:
        """Only when idle."""
        is_idle = not self.tokenizer_manager.rid_to_state
        return SimpleNamespace(success=is_idle, message="" if is_idle else "not idle")

    def begin_weight_update(self, selector: str = "all") -> tuple[bool, str]:
        """Open a session."""
        was, self.is_updating = self.is_updating, True
        return not was, "a weight-update session is already open" if was else "Success"

    def update_weights_from_tensor(
        self, named_tensors: Any, load_format: str | None = None, flush_cache: bool = True
    ) -> tuple[bool, str]:
        """Hand tensors to each rank's loader."""
        if not self.is_updating:
            return False, "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"
        assert load_format == self.loader
        module, _, name = load_format.rpartition(".")
        for rank, model in enumerate(self.ranks):
            if rank == 1 and fault_of(self.folder) == "lazy rank" and named_tensors[0][0] != "roll/report":
                continue
            getattr(importlib.import_module(module), name)(model, named_tensors)
        return True, "Success"

    def end_weight_update(self) -> tuple[bool, str]:
        """Close the session."""
        was, self.is_updating = self.is_updating, False
        self._take()
        return was, "Success" if was else "no weight-update session is open"

    def _take(self) -> None:
        state = {name: tensor.clone() for name, tensor in self.ranks[0].inner.state_dict().items()}
        self.scheduler.update_weights(ListReceiver(state))
        assert self.scheduler.lifecycle.state is EngineState.READY

    def release_memory_occupation(self, tags: list[str] | None = None) -> None:
        """Needs the memory saver, and to be idle."""
        assert self.can_release and not self.tokenizer_manager.rid_to_state

    def resume_memory_occupation(self, tags: list[str] | None = None) -> None:
        """Undo it."""
        assert self.can_release

    def shutdown(self) -> None:
        """End the children."""
        self.scheduler.stop()
        self.child.kill()
        self.child.wait()
