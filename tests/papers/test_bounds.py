"""What the theorems promise: their expressions, by hand."""

from __future__ import annotations

import math

import pytest

from tacit.papers.bounds import TheoremSizes, promises
from tacit.papers.counters import laplace_width, normal_width
from tacit.privacy.budget import Budget

K, H, S, A, D, EPS, DELTA, FAIL = 10_000, 5, 4, 3, 6, 2.0, 1e-5, 0.1


def by_name(**changed) -> dict[str, tuple[float | None, float | None]]:
    asked = {"episodes": K, "horizon": H, "states": S, "actions": A, "dimension": D}
    asked |= {"epsilon": EPS, "delta": DELTA, "failure": FAIL} | changed
    return {p.theorem: (p.printed, p.corrected) for p in promises(TheoremSizes(**asked))}


def test_printed_tabular_theorems() -> None:
    found, T = by_name(), K * H
    log_k = math.log2(K)
    for model, root in (("joint", math.sqrt(8 * log_k**3)), ("local", math.sqrt(8 * K))):
        E1 = 3 * H / EPS * root * math.sqrt(math.log(6 * S * A * T / FAIL))
        E2 = 3 * H / EPS * root * math.sqrt(math.log(6 * S**2 * A * T / FAIL))
        po = math.sqrt(S**2 * A * H**3 * T) + math.sqrt(S**3 * A**2 * H**4)
        po += E2 * S**2 * A * H**2 + E1 * S * A * H**2
        vi = math.sqrt(S * A * H**3 * T) + S**2 * A * H**3 + S**2 * A * H**2 * (E1 + E2)
        assert found[f"Theorem 1, PRIVATE-UCB-PO, {model}"][0] == pytest.approx(po)
        assert found[f"Theorem 2, PRIVATE-UCB-VI, {model}"][0] == pytest.approx(vi)


def test_printed_mixture_theorems() -> None:
    found, T, m = by_name(), K * H, 14
    t = H / EPS * math.sqrt(32 * m * math.log(4 * H / DELTA))
    width = math.sqrt(m) * (4 * math.sqrt(D) + math.sqrt(8 * math.log(8 * K * H / FAIL)))
    Sp, Sr = t * D * H**2 * width, t * width
    length = math.sqrt(D) + math.sqrt(2 * math.log(4 * K * H / FAIL))
    nu = max(t * math.sqrt(D) * H**2 * math.sqrt(m / Sp) * length, t * math.sqrt(m / Sr) * length)
    kappa = math.log(1 + K * H**2 / Sr)
    value = math.sqrt(T * H**3) * (math.log(H / FAIL) + D * kappa)
    value += math.sqrt(T * H * D * kappa) * (math.sqrt(D * 3 * Sp) + nu)
    assert found["Theorem 4.1, LinOpt-VI"][0] == pytest.approx(value)
    mirror = math.sqrt(T * H**3 * math.log(A))
    assert found["Theorem 5.1, LinOpt-PO"][0] == pytest.approx(value + mirror)


def test_corrected_tabular_theorems() -> None:
    """Laplace noise beside Laplace noise: twice the sensitivity, so more than is printed."""
    found, T, cells = by_name(), K * H, H * (2 * S * A + S * S * A)
    p = FAIL / 3 / (cells * K)
    for model, terms, laplace, gaussian in (
        ("joint", 14, 6 * H * 14, math.sqrt(6 * H * 14) * math.sqrt(14)),
        ("local", K - 1, 6 * H, math.sqrt(6 * H * K)),
    ):
        vi = math.sqrt(S * A * H**3 * T) + S**2 * A * H**3
        pure = vi + S**2 * A * H**2 * 2 * laplace / EPS * float(laplace_width(terms, p))
        width = gaussian / Budget(EPS, DELTA).mu * normal_width(p)
        printed, corrected = found[f"Theorem 2, PRIVATE-UCB-VI, {model}"]
        assert corrected == pytest.approx(pure)
        assert printed is not None
        assert 1.2 < corrected / printed < 2.2
        none, with_delta = found[f"Theorem 2, PRIVATE-UCB-VI, {model}, Gaussian noise"]
        assert none is None, "no Gaussian noise is printed"
        assert with_delta == pytest.approx(vi + S**2 * A * H**2 * 2 * width)


def test_the_page_compares_pure_with_pure() -> None:
    """Of K H, with 10^6 users: 214 printed, 387 corrected; 18 is of another kind of privacy."""
    asked = TheoremSizes(10**6, 20, 6, 2, 10, epsilon=1.0, delta=1e-6)
    found = {p.theorem: p for p in promises(asked)}
    vi = found["Theorem 2, PRIVATE-UCB-VI, joint"]
    gaussian = found["Theorem 2, PRIVATE-UCB-VI, joint, Gaussian noise"]
    shares = [x / asked.most for x in (vi.printed, vi.corrected, gaussian.corrected)]
    assert [f"{share:.0f}" for share in shares] == ["214", "387", "18"]
    pure = promises(TheoremSizes(10**6, 20, 6, 2, 10, epsilon=1.0, delta=0.0))
    assert (
        pure
        == [p for p in found.values() if "UCB" in p.theorem and "Gauss" not in p.theorem][
            : len(pure)
        ]
    )
    assert len(pure) == 4


def test_corrected_constants_promise_more_for_the_same_budget() -> None:
    found = by_name()
    for theorem, (printed, corrected) in found.items():
        assert (printed is None) == ("Gaussian noise" in theorem)
        if theorem.startswith("Theorem 3.2"):
            assert corrected is None
            private = H**4.5 * D ** (7 / 6) * math.sqrt(K) * math.log(1 / DELTA) / EPS
            assert printed == pytest.approx(D * math.sqrt(H**3 * K) + private)
        elif theorem.startswith("Proposition 10"):
            assert corrected is not None
            assert corrected > printed, "what is false promised too much"
        elif "LinOpt" in theorem:
            # Elsewhere smaller noise has a larger logarithm, or the printed noise is too small.
            assert corrected is not None
            assert corrected < printed
    # A larger budget promises more, always.
    for theorem, values in by_name(epsilon=10.0).items():
        for before, after in zip(found[theorem], values, strict=True):
            assert (before is None) == (after is None)
            assert before is None or after is None or after < before
