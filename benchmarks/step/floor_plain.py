"""What a step costs with transformers and torch alone, as TRL uses them: `generate`, then one padded batch.

python -m step.floor_plain FOLDER CASE LOG
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from step.gate import Gate, Stopped, versions
from step.work import CASES, Case


class Floor:
    """Model and optimiser of one case."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        tokenizer = AutoTokenizer.from_pretrained(case.model(folder))
        ids = torch.tensor([tokenizer(prompt)["input_ids"] for prompt in case.prompts(folder)])
        self.end = tokenizer.eos_token_id
        self.prompts = ids.repeat_interleave(case.group_size, dim=0)
        self.model = AutoModelForCausalLM.from_pretrained(case.model(folder), dtype=torch.float32)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)

    def generate(self) -> torch.Tensor:
        """Prompts and answers, int64 [rows, prompt + longest answer]."""
        self.model.eval()
        with torch.no_grad():
            sequences = self.model.generate(
                self.prompts,
                attention_mask=torch.ones_like(self.prompts),
                do_sample=True,
                top_k=0,
                top_p=1.0,
                max_new_tokens=max(self.case.lengths),
            )
        assert isinstance(sequences, torch.Tensor)
        return sequences

    def train(self, sequences: torch.Tensor) -> int:
        """One optimiser step of the clipped-ratio loss at ratio 1; the number of tokens it was over."""
        self.model.train()
        answers = sequences[:, self.prompts.shape[1] :]
        ended = (answers == self.end).cumsum(dim=1) - (answers == self.end).int()
        mask = ended == 0
        attention = torch.cat([torch.ones_like(self.prompts), mask.long()], dim=1)
        logits = self.model(sequences, attention_mask=attention, logits_to_keep=answers.shape[1] + 1).logits[:, :-1]
        log_probs = logits.log_softmax(dim=-1).gather(-1, answers[:, :, None]).squeeze(-1)
        ratio = (log_probs - log_probs.detach()).exp()
        loss = -(ratio * torch.randn(len(answers), 1) * mask).sum() / mask.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return int(mask.sum())

    def step(self) -> dict[str, float]:
        """One step; its seconds and tokens."""
        start = time.perf_counter()
        sequences = self.generate()
        middle = time.perf_counter()
        tokens = self.train(sequences)
        return {"tokens": tokens, "generate": middle - start, "train": time.perf_counter() - middle}


def main() -> None:
    """Run steps until there are no more commands."""
    folder, case, log = Path(sys.argv[1]), CASES[sys.argv[2]], Path(sys.argv[3])
    gate = Gate(log)
    torch.set_num_threads(1)
    floor = Floor(folder, case)
    with suppress(Stopped):
        gate.open(**versions())
        while True:
            gate.passed(**floor.step())


if __name__ == "__main__":
    main()
