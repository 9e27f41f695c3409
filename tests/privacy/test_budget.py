"""Budgets and conversions: against mpmath, against dp-accounting, and as properties."""

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.budget import Budget, delta_from_mu, epsilon_from_mu, mu_from_budget
from tacit.privacy.errors import InvalidArgument

TINY = sys.float_info.min
BELOW_ONE = 1 - 2.0**-53

epsilons = st.floats(1e-3, 50)
deltas = st.floats(-12, -2).map(lambda power: 10**power)
mus = st.floats(-3, 1).map(lambda power: 10**power)
quick = settings(deadline=None, max_examples=60)

# Phi(-x) - e^epsilon Phi(-y) with mpmath at 400 digits.
MPMATH_DELTAS = [
    (1e-09, 0.0, 3.989422804014327e-10),
    (1e-09, 1e-09, 8.3315470629344039e-11),
    (1e-09, 3e-08, 1.6319567585709757e-208),
    (0.0001, 0.001, 7.4782984600195642e-29),
    (0.01, 0.37, 1.8591889534672325e-303),
    (0.2367, 1.0, 9.996190577823362e-7),
    (0.499, 10.0, 4.3917679770496222e-89),
    (0.5, 0.0, 1.9741265136584745e-1),
    (0.5, 18.0, 4.5556216906417169e-282),
    (1.0, 1.0, 1.2693673750664395e-1),
    (1.0, 36.0, 6.7231899231030299e-278),
    (3.0, 0.5, 8.2999580994769031e-1),
    (10.0, 50.0, 4.60493305898614e-1),
    (25.0, 700.0, 1.0683199937822814e-54),
    (40.0, 1000.0, 2.5362965149565509e-7),
    (30.0, 450.0, 4.8671665064601621e-1),
    (18.0, 700.0, 5.1512485635280398e-197),
]

# epsilon, delta and mu.
TABLE = [
    (0.45, 1e-4, 0.1545),
    (0.9, 1e-4, 0.2860),
    (1, 1e-6, 0.2367),
    (5, 1e-6, 1.020),
    (10, 1e-6, 1.848),
]


@pytest.mark.parametrize(("mu", "epsilon", "reference"), MPMATH_DELTAS)
def test_delta_agrees_with_mpmath_and_is_an_upper_bound(mu, epsilon, reference):
    delta = delta_from_mu(mu, epsilon)
    assert reference <= delta <= reference * (1 + 1e-11)


def test_delta_has_no_jump_where_the_formula_changes():
    """The quadrature below mu = 1/2, the difference above, and Phi left of x = 0 agree."""
    for epsilon in (0.0, 0.05, 0.124999, 1.0, 5.0, 15.0):
        below, above = delta_from_mu(math.nextafter(0.5, 0), epsilon), delta_from_mu(0.5, epsilon)
        assert below == pytest.approx(above, rel=1e-11)
    for mu in (0.6, 1.0, 7.0):  # x changes its sign at epsilon = mu^2 / 2
        left = delta_from_mu(mu, mu**2 / 2 * (1 - 1e-15))
        right = delta_from_mu(mu, mu**2 / 2 * (1 + 1e-15))
        assert left == pytest.approx(right, rel=1e-12)


def test_delta_at_epsilon_zero_is_the_total_variation_distance():
    for mu in (1e-12, 1e-3, 0.3, 1.0, 4.0):
        assert delta_from_mu(mu, 0) == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-13)


def test_underflow_is_rounded_up_and_perfect_privacy_is_zero():
    assert delta_from_mu(1e-9, 1.0) == TINY
    assert delta_from_mu(5e-324, 0.0) == TINY
    assert (delta_from_mu(0, 0), epsilon_from_mu(0, 1e-6)) == (0.0, 0.0)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1, 5, 50])
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 1e-2])
def test_agrees_with_dp_accounting(epsilon, delta):
    oracle = pytest.importorskip("dp_accounting.gaussian_mechanism")
    sigma = oracle.get_sigma_gaussian(epsilon, delta)
    assert 1 / mu_from_budget(epsilon, delta) == pytest.approx(sigma, rel=1e-6)
    assert epsilon_from_mu(1 / sigma, delta) == pytest.approx(epsilon, rel=1e-6)
    assert oracle.get_epsilon_gaussian(sigma, delta) == pytest.approx(epsilon, rel=1e-6)


def test_the_number_everybody_should_know():
    assert round(1 / Budget(1, 1e-6).mu, 4) == 4.2247


@pytest.mark.parametrize(("epsilon", "delta", "mu"), TABLE)
def test_table_of_conversions(epsilon, delta, mu):
    assert Budget(epsilon, delta).mu == pytest.approx(mu, abs=0.51e-3)


@quick
@given(epsilons, deltas)
def test_mu_is_safe_and_tight(epsilon, delta):
    mu = mu_from_budget(epsilon, delta)
    assert delta_from_mu(mu, epsilon) <= delta
    assert delta_from_mu(mu * (1 + 1e-11), epsilon) > delta


@quick
@given(mus, deltas)
def test_epsilon_is_safe_and_tight(mu, delta):
    epsilon = epsilon_from_mu(mu, delta)
    assert delta_from_mu(mu, epsilon) <= delta
    if epsilon > 1e-3:
        assert delta_from_mu(mu, epsilon * (1 - 1e-9)) > delta
    if epsilon == 0:
        assert delta_from_mu(mu, 0) <= delta


@quick
@given(epsilons, deltas)
def test_round_trip(epsilon, delta):
    back = epsilon_from_mu(mu_from_budget(epsilon, delta), delta)
    # Both steps are on the safe side of one inequality, which rounding makes jagged by some ulps.
    assert back <= epsilon * (1 + 1e-13)
    assert back == pytest.approx(epsilon, rel=1e-8)


@quick
@given(mus, mus, epsilons, epsilons)
def test_delta_rises_with_mu_and_falls_with_epsilon(mu, other_mu, epsilon, other_epsilon):
    low, high = sorted((mu, other_mu))
    small, large = sorted((epsilon, other_epsilon))
    slack = 1 + 1e-11
    assert delta_from_mu(low, small) <= delta_from_mu(high, small) * slack
    assert delta_from_mu(low, large) <= delta_from_mu(low, small) * slack


@pytest.mark.parametrize("delta", [TINY, 1e-300, 1e-16, 0.5, BELOW_ONE])
def test_extremes_are_finite_and_safe(delta):
    """Warnings are errors in this suite, so none is raised here either."""
    for epsilon in (0, 5e-324, 1e-300, 1e-9, 1, 700, 1e6, 1e13):
        mu = mu_from_budget(epsilon, delta)
        assert 0 < mu < 1e7
        assert delta_from_mu(mu, epsilon) <= delta
    for mu in (5e-324, TINY, 1e-300, 1e-9, 1, 100, 1e7):
        epsilon = epsilon_from_mu(mu, delta)
        assert 0 <= epsilon < math.inf
        assert delta_from_mu(mu, epsilon) <= delta


def test_pure_budget_has_no_mu_and_says_what_to_do():
    budget = Budget(0.5, 0)
    assert budget.pure
    assert not Budget(0.5, 1e-9).pure
    with pytest.raises(InvalidArgument, match="use Laplace noise"):
        _ = budget.mu


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, True, "1", None, 1j, 10**400])
def test_budget_refuses_epsilon(epsilon):
    with pytest.raises(InvalidArgument, match=r"epsilon is .* must be a positive finite number"):
        Budget(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [-1e-9, 1, 1.5, math.nan, math.inf, False, "0", None, 1e-310])
def test_budget_refuses_delta(delta):
    with pytest.raises(InvalidArgument, match=r"delta is .* must be 0, or from"):
        Budget(1.0, delta)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: delta_from_mu(-1, 1), "mu"),
        (lambda: delta_from_mu(math.nan, 1), "mu"),
        (lambda: delta_from_mu(1e8, 1), "mu"),
        (lambda: delta_from_mu(1, -1), "epsilon"),
        (lambda: delta_from_mu(1, math.inf), "epsilon"),
        (lambda: epsilon_from_mu(1, 0), "delta"),
        (lambda: epsilon_from_mu(1, 1), "delta"),
        (lambda: mu_from_budget(1, 0), "delta"),
        (lambda: mu_from_budget(1e14, 1e-6), "epsilon"),
    ],
)
def test_refusals_name_the_argument(call, name):
    with pytest.raises(InvalidArgument, match=f"^{name} is "):
        call()
