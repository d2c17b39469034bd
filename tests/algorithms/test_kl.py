import math

import numpy as np
import pytest
import torch

from roll_core.algorithms.kl import add_token_level_kl, kl_controller, kl_divergence

P, Q = [-0.5, -2.0, -1.0, -3.0], [-1.0, -1.0, -1.0, -2.5]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("kl", [0.5, -1.0, 0.0, -0.5]),
        ("k1", [0.5, -1.0, 0.0, -0.5]),
        ("abs", [0.5, 1.0, 0.0, 0.5]),
        ("mse", [0.125, 0.5, 0.0, 0.125]),
        ("k2", [0.125, 0.5, 0.0, 0.125]),
        ("k3", [math.exp(-0.5) + 0.5 - 1, math.e - 2, 0.0, math.exp(0.5) - 1.5]),
        ("low_var_kl", [math.exp(-0.5) + 0.5 - 1, math.e - 2, 0.0, math.exp(0.5) - 1.5]),
    ],
)
def test_each_form_by_hand(form: str, expected: list[float]) -> None:
    np.testing.assert_allclose(kl_divergence(torch.tensor(P), torch.tensor(Q), form).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("form", ["k1", "k3"])
def test_unbiased_forms_average_to_the_true_divergence(form: str) -> None:
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    exact = (p * (p / q).log()).sum()
    expectation = (p * kl_divergence(p.log(), q.log(), form)).sum()
    assert expectation.item() == pytest.approx(exact.item(), abs=1e-6)


def test_k3_stays_finite_where_the_exponential_overflows() -> None:
    log_probs = torch.tensor([-100.0, -1.0], requires_grad=True)
    divergence = kl_divergence(log_probs, torch.tensor([-1.0, -100.0]), "k3")
    divergence.sum().backward()
    assert divergence.tolist() == [10.0, 10.0]
    assert log_probs.grad is not None and log_probs.grad.isfinite().all()


def test_k3_gradient_by_finite_differences() -> None:
    log_probs = torch.tensor(P, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: kl_divergence(x, torch.tensor(Q, dtype=torch.float64), "k3"), log_probs)


def test_the_full_form_says_why_not() -> None:
    with pytest.raises(ValueError, match="'full' sums over the vocabulary; only log-probabilities of the sampled"):
        kl_divergence(torch.zeros(1), torch.zeros(1), "full")


def test_an_unknown_form_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no kl_penalty named 'k4'\n  there are: kl, k1, abs, mse, k2, k3, low_var_kl"):
        kl_divergence(torch.zeros(1), torch.zeros(1), "k4")


def test_divergence_is_taken_off_the_reward_of_true_tokens_only() -> None:
    rewards = torch.tensor([[0.0, 1.0, 0.0]])
    kl = torch.tensor([[2.0, 4.0, float("nan")]])
    mask = torch.tensor([[True, True, False]])
    assert add_token_level_kl(rewards, kl, mask, 0.25).tolist() == [[-0.5, 0.0, 0.0]]


def test_a_fixed_coefficient_never_moves() -> None:
    controller = kl_controller(0.2)
    controller.update(100.0, 64)
    assert controller.coefficient == 0.2


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(6.0, 0.2 * (1 + 0.0 * 0.01)), (6.6, 0.2 * (1 + 0.1 * 0.01)), (60.0, 0.2 * 1.002), (0.0, 0.2 * 0.998)],
)
def test_an_adaptive_coefficient_follows_the_clipped_error(kl: float, expected: float) -> None:
    controller = kl_controller(0.2, target=6.0, horizon=6400)
    controller.update(kl, 64)
    assert controller.coefficient == pytest.approx(expected)


def test_an_adaptive_coefficient_goes_on_after_a_resume() -> None:
    first, resumed = kl_controller(0.2, target=1.0), kl_controller(0.2, target=1.0)
    first.update(5.0, 100)
    resumed.load_state_dict(first.state_dict())
    first.update(5.0, 100)
    resumed.update(5.0, 100)
    assert first.coefficient == resumed.coefficient != 0.2
