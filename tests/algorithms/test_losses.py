import functools
import operator
import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.algorithms.aggregation import token_weights
from roll_core.algorithms.correction import CorrectionConfig, ImportanceWeight, MismatchFilter
from roll_core.algorithms.losses import PolicyLoss, ValueLoss
from roll_core.algorithms.variants import VARIANTS, VariantConfig
from roll_core.training import MicroBatch, Tally

NAN = float("nan")
ROWS, WIDTH = 6, 5


@dataclass
class Batch:
    """A mini-batch as a driver would send it, with everything a loss may ask for."""

    mask: torch.Tensor
    log_probs: torch.Tensor
    entropy: torch.Tensor
    values: torch.Tensor
    columns: dict[str, torch.Tensor]

    def micro(self, rows: Any = slice(None), width: int | None = None, without: tuple[str, ...] = ()) -> MicroBatch:
        cut = {
            name: column[rows, :width] if column.dim() == 2 else column[rows]
            for name, column in self.columns.items()
            if name not in without
        }
        per_token = (x[rows, :width] for x in (self.mask, self.log_probs, self.entropy, self.values))
        mask, log_probs, entropy, values = per_token
        return MicroBatch(mask, cut, log_probs, entropy, values)


def make_batch(seed: int = 0, garbage: float = 0.0, padding: int = 0, mode: Any = "token-mean") -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def draw(scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(ROWS, WIDTH, generator=generator)

    mask = torch.rand(ROWS, WIDTH, generator=generator) < 0.7
    mask[0], mask[1], mask[1, 0] = True, False, True
    loss_mask = mask & (torch.arange(ROWS) != 2)[:, None]
    log_probs = -draw().abs() - 0.1
    named = {
        "log_probs": log_probs,
        "entropy": draw().abs(),
        "values": draw(),
        "old_log_probs": log_probs + draw(0.3),
        "ref_log_probs": log_probs + draw(0.5),
        "infer_log_probs": log_probs + draw(0.3),
        "advantages": draw(),
        "is_weight": draw().abs(),
        "returns": draw(),
        "old_values": draw(),
    }
    mask, loss_mask = (torch.nn.functional.pad(m, (0, padding)) for m in (mask, loss_mask))
    named = {name: torch.where(mask, torch.nn.functional.pad(x, (0, padding)), garbage) for name, x in named.items()}
    columns = {name: named[name] for name in named if name not in ("log_probs", "entropy", "values", "old_values")}
    columns["values"] = named["old_values"]
    columns["scores"] = torch.tensor([1.0, 0.0, 1.0, -1.0, 0.5, 0.0])
    columns["loss_weight"] = token_weights(loss_mask, mode, max_response_length=16)
    columns["entropy_weight"] = token_weights(mask, mode, max_response_length=16)
    columns["kl_weight"] = 2 * columns["loss_weight"]
    return Batch(mask, named["log_probs"], named["entropy"], named["values"], columns)


def run_around(t: int, tokens: list[int]) -> list[int]:
    """The tokens of the turn that t is in."""
    first, last = t, t
    while first - 1 in tokens:
        first -= 1
    while last + 1 in tokens:
        last += 1
    return list(range(first, last + 1))


def policy_loss_by_loops(
    loss: PolicyLoss, batch: Batch, log_probs: np.ndarray, constant_log_probs: np.ndarray, with_old: bool = True
) -> float:
    """The formulas, token by token in float64. Ratios without gradient read `constant_log_probs`."""
    columns = {name: column.double().numpy() for name, column in batch.columns.items()}
    o, total = loss.options, 0.0
    for b in range(ROWS):
        tokens = [t for t in range(WIDTH) if columns["loss_weight"][b, t] != 0]
        old = columns["old_log_probs"][b] if with_old else constant_log_probs[b]
        for t in tokens:
            A, lp = columns["advantages"][b, t], log_probs[b, t]
            if loss.importance_sampling != "token":
                peers = tokens if loss.importance_sampling == "seq" else run_around(t, tokens)
                ratio = np.exp(np.mean([log_probs[b, u] - old[u] for u in peers]))
                constant = np.exp(np.mean([constant_log_probs[b, u] - old[u] for u in peers]))
            else:
                ratio, constant = np.exp(lp - old[t]), np.exp(constant_log_probs[b, t] - old[t])
            if loss.variant == "ppo":
                low, high = o.pg_clip_low or o.pg_clip, o.pg_clip_high or o.pg_clip
                value = -min(ratio * A, np.clip(ratio, 1 - low, 1 + high) * A)
                if o.dual_clip_loss and A < 0:
                    value = -max(-value, (1 + 2 * o.pg_clip) * A)
            elif loss.variant == "vanilla":
                value = -A * lp
            elif loss.variant == "tis":
                value = -np.clip(constant, 0, 1) * A * lp
            elif loss.variant == "topr":
                if columns["scores"][b] > 0:
                    value = -o.topr_positive_weight * A * lp
                else:
                    value = -o.topr_negative_weight * np.clip(constant, 0, 1) * A * lp
            elif loss.variant == "cispo":
                low, high = 1 - o.cispo_epsilon_low, 1 + o.cispo_epsilon_high
                value = -np.clip(constant, low, high) * A * lp
                if o.cispo_use_unified_mask and ((A > 0 and constant > high) or (A < 0 and constant < low)):
                    value = 0.0
            else:
                value = -A * lp + o.kimi15_tau / 2 * (lp - old[t]) ** 2
            value *= columns.get("is_weight", np.ones((ROWS, WIDTH)))[b, t]
            d = columns["ref_log_probs"][b, t] - lp
            kl = {"k3": np.exp(d) - d - 1, "mse": d**2 / 2, "kl": -d}[loss.kl_loss_form]
            weighed = columns.get("kl_weight", columns["loss_weight"])[b, t]
            total += loss.rl_loss_coef * loss.kl_loss_coef * kl * weighed
            total += loss.rl_loss_coef * value * columns["loss_weight"][b, t]
        for t in range(WIDTH):
            if columns["entropy_weight"][b, t] != 0:
                total -= loss.entropy_loss_coef * columns["entropy_weight"][b, t] * float(batch.entropy[b, t])
    return total


LOSSES = {
    "symmetric clip": PolicyLoss(),
    "unequal clip": PolicyLoss(options=VariantConfig(pg_clip_low=0.1, pg_clip_high=0.28)),
    "dual clip": PolicyLoss(options=VariantConfig(pg_clip=0.1, dual_clip_loss=True)),
    "sequence ratio": PolicyLoss(importance_sampling="seq", options=VariantConfig(pg_clip=0.05)),
    "segment ratio": PolicyLoss(importance_sampling="segment", options=VariantConfig(pg_clip=0.05)),
    "vanilla": PolicyLoss("vanilla"),
    "tis": PolicyLoss("tis"),
    "topr": PolicyLoss("topr", VariantConfig(topr_positive_weight=0.7, topr_negative_weight=1.3)),
    "cispo": PolicyLoss("cispo"),
    "cispo masked": PolicyLoss("cispo", VariantConfig(cispo_use_unified_mask=True), importance_sampling="seq"),
    "kimi15": PolicyLoss("kimi15", VariantConfig(kimi15_tau=0.4)),
    "squared divergence": PolicyLoss(kl_loss_coef=0.3, kl_loss_form="mse"),
    "signed divergence": PolicyLoss(kl_loss_coef=0.3, kl_loss_form="kl"),
    "all terms": PolicyLoss(kl_loss_coef=0.3, entropy_loss_coef=0.2, rl_loss_coef=0.5),
}


def run(loss: PolicyLoss | ValueLoss, micro: MicroBatch) -> tuple[float, torch.Tensor, dict[str, Tally]]:
    """Value, gradient with respect to what the model gave, metrics."""
    leaf = (micro.values if isinstance(loss, ValueLoss) else micro.log_probs).clone().requires_grad_()
    value, metrics = loss(
        replace(micro, values=leaf) if isinstance(loss, ValueLoss) else replace(micro, log_probs=leaf)
    )
    value.backward()
    assert leaf.grad is not None
    return value.item(), leaf.grad, metrics


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("without", [("is_weight", "kl_weight"), ()])
def test_value_and_gradient_are_those_of_the_formula(name: str, without: tuple[str, ...]) -> None:
    loss, batch = LOSSES[name], make_batch(seed=3)
    for column in without:
        del batch.columns[column]
    value, gradient, metrics = run(loss, batch.micro())
    point = batch.log_probs.double().numpy()
    assert value == pytest.approx(policy_loss_by_loops(loss, batch, point, point), abs=1e-5)
    assert metrics["actor/total_loss"].value == pytest.approx(value, abs=1e-6)
    step = 1e-6
    for index in np.ndindex(ROWS, WIDTH):
        up, down = point.copy(), point.copy()
        up[index] += step
        down[index] -= step
        slope = (policy_loss_by_loops(loss, batch, up, point) - policy_loss_by_loops(loss, batch, down, point)) / (
            2 * step
        )
        assert gradient[index].item() == pytest.approx(slope, abs=2e-5), index


def test_every_variant_is_checked_against_its_formula() -> None:
    assert {loss.variant for loss in LOSSES.values()} == set(VARIANTS)


def test_the_dual_clip_bounds_the_loss_of_bad_tokens() -> None:
    micro = MicroBatch(
        torch.ones(1, 3, dtype=torch.bool),
        {
            "loss_weight": torch.ones(1, 3),
            "advantages": torch.tensor([[-1.0, -1.0, 1.0]]),
            "old_log_probs": torch.tensor([[-3.0, -1.0, -3.0]]),
        },
        log_probs=torch.tensor([[-1.0, -1.0, -1.0]]),
    )
    value, gradient, metrics = run(PolicyLoss(options=VariantConfig(dual_clip_loss=True)), micro)
    assert value == pytest.approx(1.4 + 1.0 - 1.2)
    np.testing.assert_allclose(gradient.numpy(), [[0.0, 1.0, 0.0]], atol=1e-6)
    assert metrics["actor/ppo_ratio_high_clipfrac"].value == pytest.approx(2 / 3)
    assert metrics["actor/ppo_ratio_low_clipfrac"].value == 0.0
    assert metrics["actor/clipfrac"].value == pytest.approx(1 / 3)
    assert metrics["actor/ratio_max"].value == pytest.approx(np.exp(2), rel=1e-5)
    assert metrics["actor/ratio_min"].value == pytest.approx(1.0)
    assert metrics["actor/approxkl"].value == pytest.approx(4 / 3)
    assert metrics["actor/policykl"].value == pytest.approx(4 / 3)


def test_without_old_log_probs_the_gradient_is_that_of_reinforce() -> None:
    batch = make_batch()
    del batch.columns["old_log_probs"], batch.columns["is_weight"]
    _, gradient, metrics = run(PolicyLoss(), batch.micro())
    expected = torch.where(
        batch.columns["loss_weight"] != 0, -batch.columns["advantages"] * batch.columns["loss_weight"], 0
    )
    np.testing.assert_allclose(gradient.numpy(), expected.numpy(), atol=1e-7)
    assert metrics["actor/ratio_mean"].value == 1.0


@pytest.mark.parametrize("gap", [30.0, 99.0, float("inf")])
def test_a_ratio_that_overflows_leaves_loss_and_gradient_finite(gap: float) -> None:
    for sign in (1.0, -1.0):
        micro = MicroBatch(
            torch.ones(1, 2, dtype=torch.bool),
            {
                "loss_weight": torch.ones(1, 2),
                "advantages": torch.full((1, 2), sign),
                "old_log_probs": torch.tensor([[-gap, -1.0]]),
            },
            log_probs=torch.full((1, 2), -1.0),
        )
        value, gradient, _ = run(PolicyLoss(), micro)
        assert np.isfinite(value) and gradient.isfinite().all()


ALL_LOSSES: dict[str, PolicyLoss | ValueLoss] = {
    **LOSSES,
    "corrected": PolicyLoss(
        correction=CorrectionConfig(ImportanceWeight(), (MismatchFilter(ratio_enabled=True),)),
        kl_loss_coef=0.1,
        entropy_loss_coef=0.1,
    ),
    "value": ValueLoss(),
    "clipped value": ValueLoss(0.3),
}


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(list(ALL_LOSSES)),
    mode=st.sampled_from(["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]),
    cuts=st.lists(st.integers(0, ROWS), max_size=4),
    seed=st.integers(0, 100),
)
def test_any_cut_into_micro_batches_and_ranks_adds_up(name: str, mode: str, cuts: list[int], seed: int) -> None:
    loss, batch = ALL_LOSSES[name], make_batch(seed, mode=mode)
    value, gradient, metrics = run(loss, batch.micro())
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))
    total, shares, parts = 0.0, torch.zeros_like(gradient), []
    for rows in torch.tensor_split(order, sorted(cuts)):
        used = batch.mask[rows].any(0).nonzero()
        width = int(used.max()) + 1 if len(used) else 0
        part_value, part_gradient, part_metrics = run(loss, batch.micro(rows, width))
        total += part_value
        shares[rows, :width] = part_gradient
        parts.append(part_metrics)
    assert total == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(shares.numpy(), gradient.numpy(), atol=1e-6)
    for metric, tally in metrics.items():
        added = functools.reduce(operator.add, [part[metric] for part in parts])
        assert added.value == pytest.approx(tally.value, abs=1e-5), metric


@pytest.mark.parametrize("garbage", [float("inf"), float("-inf"), NAN, 1e9])
@pytest.mark.parametrize("name", ALL_LOSSES)
def test_padding_full_of_garbage_changes_neither_value_nor_gradient(name: str, garbage: float) -> None:
    clean = run(ALL_LOSSES[name], make_batch().micro())
    dirty = run(ALL_LOSSES[name], make_batch(garbage=garbage, padding=10).micro())
    assert dirty[0] == pytest.approx(clean[0], abs=1e-6)
    np.testing.assert_allclose(dirty[1][:, :WIDTH].numpy(), clean[1].numpy(), atol=1e-7)
    assert (dirty[1][:, WIDTH:] == 0).all()
    for metric, tally in clean[2].items():
        assert dirty[2][metric].value == pytest.approx(tally.value, abs=1e-5), metric


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_a_micro_batch_without_any_weight_adds_zero_and_still_has_a_gradient(name: str) -> None:
    batch = make_batch(garbage=NAN)
    for weight in ("loss_weight", "entropy_weight", "kl_weight"):
        batch.columns[weight] = torch.zeros_like(batch.columns[weight])
    value, gradient, metrics = run(ALL_LOSSES[name], batch.micro())
    assert value == 0.0 and (gradient == 0).all()
    assert all(np.isfinite(tally.value) for tally in metrics.values())


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_a_loss_travels_to_a_worker(name: str) -> None:
    assert pickle.loads(pickle.dumps(ALL_LOSSES[name])) == ALL_LOSSES[name]


def test_the_correction_weighs_and_filters_in_the_loss() -> None:
    batch = make_batch()
    config = CorrectionConfig(ImportanceWeight("token", 1.1), (MismatchFilter(ratio_enabled=True, ratio_high=1.3),))
    loss = PolicyLoss("vanilla", correction=config, kl_loss_coef=0.3, kl_loss_form="mse", entropy_loss_coef=0.2)
    del batch.columns["kl_weight"], batch.columns["entropy_weight"]
    value, _, metrics = run(loss, batch.micro(without=("old_log_probs",)))
    columns = {name: column.double().numpy() for name, column in batch.columns.items()}
    lp = batch.log_probs.double().numpy()
    ratio = np.exp(lp - columns["infer_log_probs"])
    inside = (ratio >= 0.8) & (ratio <= 1.3)
    policy = np.minimum(ratio, 1.1) * -columns["advantages"] * lp
    regularisers = 0.3 * (columns["ref_log_probs"] - lp) ** 2 / 2 - 0.2 * batch.entropy.double().numpy()
    expected = (columns["loss_weight"] * inside * (policy + regularisers)).sum()
    assert value == pytest.approx(expected, abs=1e-6)
    weighted = columns["loss_weight"] != 0
    assert metrics["actor/train_infer_final_mask_mean"].value == pytest.approx(inside[weighted].mean())


@pytest.mark.parametrize("name", LOSSES)
def test_rows_that_do_not_matter_have_no_gradient(name: str) -> None:
    loss, batch = LOSSES[name], make_batch()
    batch.columns["advantages"][[0, 3]] = 0.0
    matters = loss.rows_that_matter(batch.columns)
    entropy = batch.entropy.clone().requires_grad_()
    leaf = batch.log_probs.clone().requires_grad_()
    loss(replace(batch.micro(), log_probs=leaf, entropy=entropy))[0].backward()
    assert leaf.grad is not None
    has_gradient = (leaf.grad != 0).any(-1)
    if entropy.grad is not None:
        has_gradient |= (entropy.grad != 0).any(-1)
    assert not has_gradient[~matters].any()
    needs_all = name in ("kimi15", "all terms", "squared divergence", "signed divergence")
    assert matters[[0, 3]].tolist() == [needs_all, needs_all]
    assert matters[2].item() == (name == "all terms")


def test_a_missing_column_is_named() -> None:
    batch = make_batch()
    with pytest.raises(ValueError) as caught:
        PolicyLoss(kl_loss_coef=0.1)(batch.micro(without=("ref_log_probs",)))
    assert str(caught.value) == (
        "the loss needs column 'ref_log_probs'\n"
        "  the batch has: advantages, entropy_weight, infer_log_probs, is_weight, kl_weight, loss_weight, "
        "old_log_probs, returns, scores, values"
    )
    with pytest.raises(ValueError, match="pg_variant topr needs the column 'scores'"):
        PolicyLoss("topr")(batch.micro(without=("scores",)))


def test_an_entropy_bonus_asks_for_entropy() -> None:
    assert PolicyLoss(entropy_loss_coef=0.1).needs_entropy and not PolicyLoss().needs_entropy
    assert ValueLoss().needs_values and not PolicyLoss().needs_values
    with pytest.raises(ValueError, match=r"an entropy bonus needs MicroBatch\.entropy"):
        PolicyLoss(entropy_loss_coef=0.1)(replace(make_batch().micro(), entropy=None))


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="no pg_variant named 'gspo'\n  there are: ppo, vanilla, tis, topr, cispo, kimi15"
    ):
        PolicyLoss("gspo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no importance_sampling named 'row'\n  there are: token, seq, segment"):
        PolicyLoss(importance_sampling="row")  # type: ignore[arg-type]


@pytest.mark.parametrize("value_clip", [None, 0.3])
def test_value_loss_is_that_of_the_formula(value_clip: float | None) -> None:
    batch = make_batch(mode="seq-mean-token-mean")
    value, gradient, metrics = run(ValueLoss(value_clip), batch.micro())
    columns = {name: column.double().numpy() for name, column in batch.columns.items()}
    predicted, old, returns = batch.values.double().numpy(), columns["values"], columns["returns"]
    kept = columns["loss_weight"] != 0
    rows, slopes, clipped_tokens = [], np.zeros((ROWS, WIDTH)), 0
    num_rows = kept.any(-1).sum()
    for b in np.flatnonzero(kept.any(-1)):
        terms = []
        for t in np.flatnonzero(kept[b]):
            plain = (predicted[b, t] - returns[b, t]) ** 2
            slope = predicted[b, t] - returns[b, t]
            if value_clip is not None:
                moved = np.clip(predicted[b, t], old[b, t] - value_clip, old[b, t] + value_clip)
                if (moved - returns[b, t]) ** 2 > plain:
                    plain, slope, clipped_tokens = (moved - returns[b, t]) ** 2, 0.0, clipped_tokens + 1
            terms.append(plain)
            slopes[b, t] = slope / kept[b].sum() / num_rows
        rows.append(np.mean(terms))
    assert value == pytest.approx(0.5 * np.mean(rows), rel=1e-5)
    np.testing.assert_allclose(gradient.numpy(), slopes, atol=1e-6)
    assert metrics["critic/loss"].value == pytest.approx(value)
    assert metrics["critic/vpred"].value == pytest.approx(predicted[kept].mean(), abs=1e-6)
    assert metrics["critic/error"].value == pytest.approx(((predicted - returns)[kept] ** 2).mean(), rel=1e-5)
    if value_clip is None:
        assert "critic/clipfrac" not in metrics
    else:
        assert clipped_tokens > 0
        assert metrics["critic/clipfrac"].value == pytest.approx(clipped_tokens / kept.sum())
