"""Numbers of the page of errata, computed by the code that stands for the papers."""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.papers import chowdhury_tabular_2021 as tabular
from tacit.papers import wang_functional_2019 as functional
from tacit.papers import zhou_mixture_2022 as mixture
from tacit.papers.result import Sizes
from tacit.privacy.budget import Budget, epsilon_from_mu
from tacit.privacy.noise import Noise

Floats = NDArray[np.float64]
PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text().splitlines()


def cells(start: str) -> list[str]:
    """The cells of the one row that begins so."""
    (row,) = [line for line in PAGE if line.startswith(start)]
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("power", [3, 4, 5, 6])
def test_the_tabular_factor_is_what_the_printed_noise_proves(power: int) -> None:
    K = 10**power
    sizes = Sizes(K, 10, (4, 2), 1.0, 0.0, 0.1, True, Noise(0))
    proven = tabular.central(sizes).proof.guarantee
    assert proven is not None
    m = math.ceil(math.log2(K))
    words = [str(m), f"{proven.epsilon:.2f}", f"{2 * m / math.log(K):.2f}"]
    assert cells(f"| {f'{K:,}'.replace(',', ' ')} |")[1:] == words


@pytest.mark.parametrize("H", [1, 5, 20])
def test_the_mixture_noise_proves_less_than_is_claimed(H: int) -> None:
    K, d, delta = 10**4, 2, 1e-6
    printed, corrected = (
        mixture.private(Sizes(K, H, (d, d), 1.0, delta, 0.1, flag, Noise(0)))
        for flag in (True, False)
    )
    proven = printed.proof.guarantee
    assert proven is not None
    assert proven.mu is not None
    rho = proven.mu**2 / 2.0
    zcdp = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
    row = [line for line in PAGE if line.startswith(f"| {H} | {proven.epsilon:.3f} |")]
    # The multiplier is the noise of the reward's counters, whose sensitivities are 1.
    words = [zcdp, printed.of[1].gram, corrected.of[1].gram]
    found = [float(cell) for cell in row[0].strip("|").split("|")[2:]]
    assert found == pytest.approx(words, rel=5e-3)


@pytest.mark.parametrize("H", [1, 2, 3])
def test_how_far_two_users_counts_are_apart(H: int) -> None:
    """Over all users: 6H where any two trajectories are compared, 6H - 3 from a fixed first state.

    There the first action is the same for both, whatever the policy; later ones follow the state.
    """
    rng = np.random.default_rng(H)

    def counts(states: Sequence[int], actions: Sequence[int], costs: Sequence[int]) -> Floats:
        N, C, M = np.zeros((H, 2, 2)), np.zeros((H, 2, 2)), np.zeros((H, 2, 2, 2))
        for h in range(H):
            N[h, states[h], actions[h]] += 1.0
            C[h, states[h], actions[h]] += costs[h]
            M[h, states[h], actions[h], states[h + 1]] += 1.0
        return np.concatenate([N.ravel(), C.ravel(), M.ravel()])

    def farthest(users: list[Floats]) -> float:
        return max(np.abs(here - there).sum() for here in users for there in users)

    def each(n: int) -> itertools.product[tuple[int, ...]]:
        return itertools.product((0, 1), repeat=n)

    some = [counts(*(rng.integers(0, 2, n) for n in (H + 1, H, H))) for _ in range(60)]
    opposite = [counts([x] * (H + 1), [x] * H, [1] * H) for x in (0, 1)]
    assert farthest(some + opposite) == 6 * H
    pi = rng.integers(0, 2, (H, 2))
    fixed = [
        counts((0, *after), [pi[h, s] for h, s in enumerate((0, *after[:-1]))], costs)
        for after in each(H)
        for costs in each(H)
    ]
    assert farthest(fixed) == 6 * H - 3
    assert "6H - 3 is attained" in " ".join(PAGE)


@pytest.mark.parametrize("N", [2, 10])
def test_no_learner_can_hide_the_reward_function(N: int) -> None:
    """p <= (e^eps + (N - 1) delta) / (e^eps + N - 1), with the paper's delta."""
    bounds = [(math.exp(eps) + (N - 1) * 1e-4) / (math.exp(eps) + N - 1) for eps in (0.9, 0.45)]
    assert cells(f"| N = {N} |")[1:] == [f"{bound:.3f}" for bound in bounds]


def test_e3_and_the_range_of_theorem_5() -> None:
    """What the page says of 8.6, 3.5 and 13; test_wang_functional_2019 has each by a second way."""
    (row,) = [line for line in PAGE if line.startswith("| 9 | P | E.3")]
    v = functional.Setting(k=23.0).v
    sigma = math.sqrt(2 * 5000 / 64 * math.log(0.9 / 5e-5)) * v * 16 / 0.9
    coefficient = 8.68 * sigma / math.sqrt(v * 24)
    room = math.sqrt(-2 * math.log(1 - (1 - 5e-5) ** (1 / 78)))
    assert f"2k - {coefficient:.1f} sqrt(k+1)" in row
    assert f"3.5 is {room:.2f}" in row
    holds = []
    for epsilon in range(1, 21):
        mu = epsilon / math.sqrt(2 * math.log(math.e + epsilon / 5e-5))
        holds += [epsilon] if epsilon_from_mu(mu, 5e-5) <= epsilon else []
    assert holds == [*range(1, holds[-1] + 1)]
    words = (
        f"epsilon up to {holds[-1]} (at delta = 5e-5; at {holds[-1] + 1} its sigma is too small)"
    )
    assert words in " ".join(PAGE)


def test_corrected_trees_at_the_pages_sizes() -> None:
    H, K = 10, 10**4
    m = math.ceil(math.log2(K))
    laplace = 6 * H * m * math.sqrt(2 * m)
    gaussian = math.sqrt(6 * H * m) / Budget(1.0, 1e-6).mu * math.sqrt(m)
    assert f"(eps = 1, delta = 0) {laplace:.0f}, Gaussian tree {gaussian:.0f}," in " ".join(PAGE)


def test_noise_of_public_code_from_its_law() -> None:
    """LDP-UCRL-VTR: |p| and |q| at most H, both with noise sigma, in each step of a report."""
    H, delta = 6, 0.01
    sigma = 4 * H**3 * math.sqrt(2 * math.log(2.5 * H / delta))
    mu = math.sqrt(H * 2 * (H**2 + H**2 / 2) ** 2) / sigma
    less = Budget(1.0, delta).mu / mu
    page = (Path(__file__).parents[2] / "docs/papers/zhou_mixture_2022.md").read_text()
    assert f"{mu:.4f}-GDP for a nominal epsilon 1" in page
    assert f"epsilon {epsilon_from_mu(mu, delta):.3f} at its delta = 0.01" in page
    assert f"could be {less:.0f} times smaller" in page
    page = (Path(__file__).parents[2] / "docs/papers/wang_functional_2019.md").read_text()
    assert f"exp(-{functional.Setting(k=2.3).beta:,.0f} |x - y|)" in page


def test_pages_have_the_stored_regrets() -> None:
    """Figures of two pages are those of the stored table."""
    text = json.loads((DOCS.parent / "research/linear_paper_regret.json").read_text())
    lines = [line.strip("| ").split(" | ") for line in text["table"]["text"].splitlines()[2:]]
    rows = {(along.partition(",")[0], line): rest for along, line, *rest in lines}
    mixture_page, linear_page = (
        " ".join((DOCS / f"papers/{name}.md").read_text().split())
        for name in ("zhou_mixture_2022", "sahu_linear_2025")
    )
    vi, po, local = (rows["users K", line][-1] for line in ("VI, joint", "PO, joint", "VI, local"))
    assert vi == po
    assert f"order {vi} in K for VI and for PO at epsilon 10,000" in mixture_page
    assert f"with {local} under local DP" in mixture_page
    vi, po = rows["epsilon", "VI, joint"], rows["epsilon", "PO, joint"]
    assert f"it is {vi[-1]} and {po[-1]} from 100 to 100,000" in mixture_page
    assert f"VI loses {vi[0]} where random actions lose {vi[2]}" in mixture_page
    growth = math.log(Budget(1e5, 1e-6).mu / Budget(1e2, 1e-6).mu) / math.log(1e3)
    assert f"mu grows like epsilon^{growth:.2f}" in mixture_page
    first, some, lost, *_ = rows["epsilon", "LSVI, tuned"]
    last, _, most = some.replace("[", "").removesuffix("]").split(" ")
    assert f"the 90th percentile is {most}" in linear_page
    words = f"{first} at epsilon 1 and {last} at epsilon 1,000, where random actions lose {lost}"
    assert words in linear_page
    _, tuned, lost, *_ = rows["epsilon", "LSVI, tuned, H = 20"]
    free = rows["epsilon", "LSVI, no noise, H = 20"][0]
    words = f"loses {tuned.split()[0]} at epsilon 1,000, where random actions lose {lost}, and"
    assert f"{words} without noise, with lambda and the bonus 1, it loses {free}." in linear_page


def test_lemma_12_of_the_lq_paper_survives_its_proof() -> None:
    """Mean norms of triangles are below those of full matrices, and so are increments."""
    rng, n = np.random.default_rng(3), 6
    full = rng.normal(size=(4000, n, n))
    norms = [
        np.linalg.norm(part, 2, axis=(1, 2)) for part in (full, np.triu(full), np.tril(full, -1))
    ]
    assert norms[0].mean() < 2 * math.sqrt(n)
    assert max(norms[1].mean(), norms[2].mean()) < norms[0].mean() - 0.5
    symmetric = np.triu(full) + np.triu(full, 1).swapaxes(1, 2)
    for t in (0.5, 1.0, 2.0):
        above = (np.linalg.norm(symmetric, 2, axis=(1, 2)) >= 4 * math.sqrt(n) + 2 * t).mean()
        assert above <= 2 * math.exp(-(t**2) / 2)
    for _ in range(200):  # Sudakov and Fernique need no more than this
        u, v, a, b = (x / np.linalg.norm(x) for x in rng.normal(size=(4, n)))
        change = (np.outer(u, v) - np.outer(a, b)) ** 2
        assert np.triu(change).sum() <= np.sum((u - a) ** 2) + np.sum((v - b) ** 2) + 1e-12


def test_lemma_d1_of_the_linear_paper_leaves_out_its_shift() -> None:
    """At k = 1 by hand; later by matrices with weights and features of 1, and G.7 holds."""
    rng, d, lam, H = np.random.default_rng(4), 3, 5.0, 4
    assert np.linalg.det(2 * lam * np.eye(d)) == pytest.approx((2 * lam) ** d)
    assert (2 * lam) ** d > lam**d, "what is printed for k = 1"
    for k in (1, 4, 12, 200):
        x = rng.normal(size=(k - 1, d))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        noise = rng.normal(size=(d, d))
        noise = (noise + noise.T) * lam / np.linalg.norm(noise + noise.T, 2)
        found = np.linalg.det(2 * lam * np.eye(d) + x.T @ x + noise)
        assert found <= (3 * lam + (k - 1) / d) ** d * (1 + 1e-12)
        trace = np.trace(2 * lam * np.eye(d) + x.T @ x)
        assert trace == pytest.approx(2 * d * lam + k - 1)
        assert trace > d * lam + k - 1, "the printed bound of the trace"
    few = d * H * math.log2((3 * lam + 1e-9) / (2 * lam))
    assert few == pytest.approx(0.585 * d * H, rel=1e-3)
    assert d * H * math.log(1 + 1e-9 / lam) < 1e-6, "the printed order"


def test_lemma_f2_of_the_linear_paper_has_its_inequality_turned() -> None:
    """Lambda >= lambda I bounds its inverse from above: by eigenvalues and by quadratic forms."""
    rng, d, lam, beta = np.random.default_rng(5), 4, 0.3, 2.0
    for size in (0.1, 10.0, 1e4):
        some = rng.normal(size=(d, d))
        Sigma = beta**2 * np.linalg.inv(lam * np.eye(d) + size * some @ some.T)
        x = rng.normal(size=d)
        assert np.linalg.eigvalsh(Sigma).max() <= beta**2 / lam * (1 + 1e-12)
        assert x @ Sigma @ x <= beta**2 / lam * (x @ x) * (1 + 1e-12)
        assert np.linalg.norm(Sigma) <= math.sqrt(d) * beta**2 / lam, "the ball of the net"
    assert np.linalg.eigvalsh(Sigma).min() < beta**2 * lam, "what is printed"


def test_lemma_g4_of_the_linear_paper_is_for_the_other_order() -> None:
    """The printed order fails by hand; the other holds for sums of squares and for one of them."""

    def norm(x: Floats, M: Floats) -> float:
        return math.sqrt(x @ M @ x)

    A, B, e = np.eye(2), np.diag([4.0, 1.0]), np.array([0.0, 1.0])
    assert norm(e, A) > norm(e, B) * math.sqrt(np.linalg.det(A) / np.linalg.det(B))
    rng = np.random.default_rng(6)
    for _ in range(200):
        some, c, x = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)
        small = some @ some.T + 0.1 * np.eye(3)
        large = small + np.outer(c, c)
        ratio = np.linalg.det(large) / np.linalg.det(small)
        assert ratio == pytest.approx(1 + c @ np.linalg.solve(small, c))
        assert norm(x, large) <= norm(x, small) * math.sqrt(ratio) * (1 + 1e-12)


DOCS = Path(__file__).parents[2] / "docs"
