"""What the theorems promise: their expressions, by hand."""

import math

import pytest

from tacit.papers.bounds import TheoremSizes, promises
from tacit.papers.counters import laplace_width, normal_width
from tacit.privacy.budget import Budget

K, H, S, A, D, EPS, DELTA, FAIL = 10_000, 5, 4, 3, 6, 2.0, 1e-5, 0.1


def by_name(**changed):
    asked = {"episodes": K, "horizon": H, "states": S, "actions": A, "dimension": D}
    asked |= {"epsilon": EPS, "delta": DELTA, "failure": FAIL} | changed
    return {p.theorem: (p.printed, p.corrected) for p in promises(TheoremSizes(**asked))}


def test_printed_tabular_theorems():
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


def test_printed_mixture_theorems():
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


def test_corrected_tabular_theorems():
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


def test_the_page_compares_pure_with_pure():
    """Of K H, with 10^6 users: 214 printed, 387 corrected; 18 is of another kind of privacy."""
    asked = TheoremSizes(10**6, 20, 6, 2, 10, epsilon=1.0, delta=1e-6)
    found = {p.theorem: p for p in promises(asked)}
    vi = found["Theorem 2, PRIVATE-UCB-VI, joint"]
    gaussian = found["Theorem 2, PRIVATE-UCB-VI, joint, Gaussian noise"]
    shares = [x / asked.most for x in (vi.printed, vi.corrected, gaussian.corrected)]
    assert [f"{share:.0f}" for share in shares] == ["214", "387", "18"]
    pure = promises(TheoremSizes(10**6, 20, 6, 2, 10, epsilon=1.0, delta=0.0))
    tabular = [p for p in found.values() if p.paper == "chowdhury_tabular_2021"]
    assert pure == [p for p in tabular if "Gauss" not in p.theorem]
    assert len(pure) == 10


def test_table_1_of_the_tabular_paper():
    found, T = by_name(), K * H
    joint, local = S**2 * A * H**3 / EPS, S**2 * A * math.sqrt(H**5 * T) / EPS
    for name, first in (("PO", S**2), ("VI", S)):
        exact = math.sqrt(first * A * H**3 * T)
        row = f"Table 1, PRIVATE-UCB-{name}"
        assert found[f"{row}, joint"] == (pytest.approx(exact + joint), None)
        assert found[f"{row}, local"] == (pytest.approx(exact + local), None)
    others = (
        found["Table 1, PUCB (Vietri et al.), joint"],
        found["Table 1, LDP-OBI (Garcelon et al.), local"],
    )
    assert others == tuple(found[f"Table 1, PRIVATE-UCB-PO, {m}"] for m in ("joint", "local"))


def test_linear_bounds_beside_each_other():
    """At H = 20, d = 10, epsilon 1 what is printed is 68 times Ngo's bound, for every K."""
    for episodes in (100, 10**9):
        found = by_name(episodes=episodes, horizon=20, dimension=10, epsilon=1.0)
        ratio = found["abstract"][0] / found["Ngo et al., as cited"][0]
        assert ratio == pytest.approx(67.8, abs=0.05)
    own = 10 * math.sqrt(20**3 * 10**9) + 20**4.5 * 10 ** (7 / 6) * math.sqrt(10**9)
    assert found["abstract"][0] == pytest.approx(own)
    luyo = math.sqrt(10**3 * 20**4 * 10**9) + 20 ** (11 / 5) * 10 ** (8 / 5) * 1e9 ** (3 / 5)
    assert found["Luyo et al., as cited"][0] == pytest.approx(luyo)
    last = math.sqrt(20**3 * 10**9) + 20 ** (19 / 8) * 10 ** (15 / 8) * 1e9**0.75
    assert found["conclusion"][0] == pytest.approx(last)


def test_remarks_of_the_mixture_paper():
    """(4) and (5) by hand; norms up to H save sqrt(d) of the noise; local DP has order K^(3/4)."""
    found, T = by_name(), K * H
    private = math.log(H / DELTA) ** 0.25 / EPS**0.5 * D**1.75 * math.sqrt(T * H**4)
    four = D * math.sqrt(T * H**3) * math.log(T / FAIL)
    four += private * math.log(T) * math.log(T / FAIL) ** 0.25
    assert found["Theorem 6.5, (4), VI"][0] == pytest.approx(four)
    mirror = math.sqrt(T * H**3) * math.log(A)
    assert found["Theorem 6.5, (5), PO"][0] == pytest.approx(four + mirror)
    for d in (100, 400):
        more, less = (by_name(dimension=d)[n] for n in ("Theorem 4.1, LinOpt-VI", NORMS))
        assert all(before > 2 * after for before, after in zip(more, less, strict=True))
    near, far = (by_name(episodes=n)["Remark 6.9, LinOpt-VI, local"][1] for n in (10**10, 10**12))
    assert math.log(far / near) / math.log(100) == pytest.approx(0.75, abs=0.05)


NORMS = "Remark 6.6, LinOpt-VI, |phi| <= H"


def test_corrected_constants_promise_more_for_the_same_budget():
    found = by_name()
    for theorem, (printed, corrected) in found.items():
        assert (printed is None) == ("Gaussian noise" in theorem or "Remark 6.9" in theorem)
        if theorem.startswith("Theorem 3.2"):
            assert corrected is None
            private = H**4.5 * D ** (7 / 6) * math.sqrt(K) * math.log(1 / DELTA) / EPS
            assert printed == pytest.approx(D * math.sqrt(H**3 * K) + private)
        elif theorem.startswith("Proposition 10"):
            assert corrected is not None
            assert corrected > printed, "what is false promised too much"
        elif "LinOpt" in theorem and "local" not in theorem:
            # Elsewhere smaller noise has a larger logarithm, or the printed noise is too small.
            assert corrected is not None
            assert corrected < printed
    # A larger budget promises more, always.
    for theorem, values in by_name(epsilon=10.0).items():
        for before, after in zip(found[theorem], values, strict=True):
            assert (before is None) == (after is None)
            assert before is None or after is None or after < before
