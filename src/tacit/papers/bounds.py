"""Bounds of the five papers' theorems at given sizes, with printed and with corrected constants.

A theorem is an order: O is read as 1, hidden logarithms are left out. It is a number to compare
with others and with K H, which no regret in finite worlds exceeds. What depends on noise (E1, E2,
lambda, nu, sigma) is the paper's own constant, or the corrected one for the same kind of privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tacit.papers import chowdhury_lq_2021 as lq
from tacit.papers import chowdhury_tabular_2021 as tabular
from tacit.papers import wang_functional_2019 as functional
from tacit.papers import zhou_mixture_2022 as mixture
from tacit.papers.counters import laplace_width, normal_width
from tacit.papers.result import Sizes
from tacit.privacy.budget import Budget
from tacit.privacy.noise import Noise
from tacit.privacy.validation import whole_number


@dataclass(frozen=True)
class TheoremSizes:
    """Sizes and budget at which theorems are evaluated."""

    episodes: int  # K
    horizon: int  # H
    states: int  # S; coordinates n of the state in LQ control
    actions: int  # A; coordinates d of the control in LQ control
    dimension: int  # d of features
    epsilon: float
    delta: float  # with 0 there are the tabular theorems: the noise of all others is Gaussian
    failure: float = 0.1  # the probability with which a theorem may fail

    def __post_init__(self) -> None:
        for name in ("horizon", "states", "actions", "dimension"):
            whole_number(name, getattr(self, name), most=10**6)
        whole_number("episodes", self.episodes, 2, 10**12)
        _ = Budget(self.epsilon, self.delta), self.sizes((1, 1), True)

    def sizes(self, shape: tuple[int, int], printed: bool, delta: float | None = None) -> Sizes:
        """As the papers' mechanisms take them."""
        levels = self.epsilon, self.delta if delta is None else delta, self.failure, printed
        return Sizes(self.episodes, self.horizon, shape, *levels, Noise(0))

    @property
    def most(self) -> float:
        """K H: no regret in a finite world is larger."""
        return float(self.episodes * self.horizon)


@dataclass(frozen=True)
class Promise:
    """The value of a theorem's bound; ``None`` where nothing is printed, or proven."""

    paper: str
    theorem: str
    printed: float | None
    corrected: float | None
    note: str = ""


def promises(of: TheoremSizes) -> list[Promise]:
    """Every theorem about regret or loss of the five papers.

    >>> asked = TheoremSizes(10**6, 20, 6, 2, 10, epsilon=1.0, delta=1e-6)
    >>> for promise in promises(asked)[:2]:
    ...     print(promise.theorem, promise.printed and f"{promise.printed:.2g}", end=" ")
    ...     print(f"{promise.corrected:.2g}")
    Theorem 1, PRIVATE-UCB-PO, joint 2.5e+09 4.5e+09
    Theorem 1, PRIVATE-UCB-PO, joint, Gaussian noise None 2.1e+08
    """
    if not of.delta:
        return list(_tabular(of))
    return [*_tabular(of), *_mixture(of), *_lq(of), *_linear(of), *_functional(of)]


def _tabular(of: TheoremSizes) -> Iterator[Promise]:
    """Theorems 1 and 2 with E1 and E2 of Lemmas 3 and 4, pure; corrected also with Gaussian noise.

    Table 1 has orders in S, A, H, T and epsilon alone.
    """
    S, A, H, T = of.states, of.actions, of.horizon, of.most

    def po(E1: float, E2: float) -> float:
        exact = math.sqrt(S**2 * A * H**3 * T) + math.sqrt(S**3 * A**2 * H**4)
        return exact + E2 * S**2 * A * H**2 + E1 * S * A * H**2

    def vi(E1: float, E2: float) -> float:
        exact = math.sqrt(S * A * H**3 * T) + S**2 * A * H**3
        return exact + S**2 * A * H**2 * (E1 + E2)

    def precision(model: str, printed: bool, delta: float) -> tuple[float, float]:
        sizes = of.sizes((S, A), printed, delta)
        if model == "joint":
            made = tabular.central(sizes)
            return float(made.E1[-1]), float(made.E2[-1])
        if printed:
            scale = 3.0 * H / of.epsilon
            logs = tabular.lemma_logs(sizes)
            E1, E2 = (scale * math.sqrt(8.0 * of.episodes * x) for x in logs.tolist())
            return E1, E2
        if delta:
            spread = math.sqrt(6.0 * H * of.episodes) / Budget(of.epsilon, delta).mu
            return (spread * normal_width(tabular.share(sizes)),) * 2
        width = float(laplace_width(of.episodes - 1.0, tabular.share(sizes)))
        return (6.0 * H / of.epsilon * width,) * 2

    for model in ("joint", "local"):
        for name, rule in (("Theorem 1, PRIVATE-UCB-PO", po), ("Theorem 2, PRIVATE-UCB-VI", vi)):
            paper, theorem = "chowdhury_tabular_2021", f"{name}, {model}"
            yield _both(paper, theorem, lambda flag: rule(*precision(model, flag, 0.0)))  # noqa: B023
            if of.delta:
                gaussian = rule(*precision(model, printed=False, delta=of.delta))
                yield Promise(paper, f"{theorem}, Gaussian noise", None, gaussian)
    wide, narrow = math.sqrt(S**2 * A * H**3 * T), math.sqrt(S * A * H**3 * T)
    joint, local = S**2 * A * H**3 / of.epsilon, S**2 * A * math.sqrt(H**5 * T) / of.epsilon
    for name, exact, costs in (
        ("PRIVATE-UCB-PO", wide, {"joint": joint, "local": local}),
        ("PRIVATE-UCB-VI", narrow, {"joint": joint, "local": local}),
        ("PUCB (Vietri et al.)", wide, {"joint": joint}),
        ("LDP-OBI (Garcelon et al.)", wide, {"local": local}),
    ):
        for model, cost in costs.items():
            words = f"Table 1, {name}, {model}"
            yield Promise("chowdhury_tabular_2021", words, exact + cost, None, "an order")


def _mixture(of: TheoremSizes) -> Iterator[Promise]:
    """Theorems 4.1 and 5.1 with the constants of Theorem 6.5; its (4), (5); Remarks 6.6 and 6.9."""
    K, H, d, T = of.episodes, of.horizon, of.dimension, of.most

    def rule(printed: bool, actions: int, **how: Any) -> float:
        p, r = mixture.private(of.sizes((d, d), printed), **how).levels
        least, most = min(p.lambda_min, r.lambda_min), p.lambda_max
        nu, kappa = max(p.nu, r.nu), math.log(1.0 + K * H**2 / least)
        exact = math.sqrt(T * H**3) * (math.log(H / of.failure) + d * kappa)
        mirror = math.sqrt(T * H**3 * math.log(actions))
        return exact + mirror + math.sqrt(T * H * d * kappa) * (math.sqrt(d * most) + nu)

    yield _both("zhou_mixture_2022", "Theorem 4.1, LinOpt-VI", lambda flag: rule(flag, 1))
    yield _both("zhou_mixture_2022", "Theorem 5.1, LinOpt-PO", lambda flag: rule(flag, of.actions))
    name = "Remark 6.6, LinOpt-VI, |phi| <= H"
    yield _both("zhou_mixture_2022", name, lambda flag: rule(flag, 1, norm=1.0))
    local = rule(False, 1, local=True)
    yield Promise(
        "zhou_mixture_2022", "Remark 6.9, LinOpt-VI, local", None, local, "of order K^3/4"
    )
    long = math.log(T / of.failure)
    cost = math.log(H / of.delta) ** 0.25 / math.sqrt(of.epsilon) * d**1.75
    four = d * math.sqrt(T * H**3) * long + cost * math.sqrt(T * H**4) * math.log(T) * long**0.25
    five = four + math.sqrt(T * H**3) * math.log(of.actions)
    for theorem, value in (("Theorem 6.5, (4), VI", four), ("Theorem 6.5, (5), PO", five)):
        yield Promise("zhou_mixture_2022", theorem, value, None, "an order")


def _lq(of: TheoremSizes) -> Iterator[Promise]:
    """Theorem 1 with the constants of Theorem 3's proof; norms at most 1, gamma = 1."""
    K, H, n, d = of.episodes, of.horizon, of.states, of.actions

    def rule(printed: bool) -> float:
        level = lq.private(of.sizes((n, d), printed)).levels[0]
        psi = math.log(1.0 + H * K / ((n + d) * level.lambda_min))
        exact = math.sqrt(H) + n * (n + d) * psi + math.log(1.0 / of.failure)
        noise = (math.sqrt(level.lambda_max) + level.nu) * math.sqrt(n * (n + d) * psi)
        return H * math.sqrt(K) * (exact + noise)

    yield _both("chowdhury_lq_2021", "Theorem 1, Private-OFU-RL (cost)", rule)


def _linear(of: TheoremSizes) -> Iterator[Promise]:
    """Theorem 3.2, which its own constants do not give, and the bounds that it is compared with."""
    K, H, d = of.episodes, of.horizon, of.dimension
    private = H**4.5 * d ** (7 / 6) * math.sqrt(K) * math.log(1.0 / of.delta) / of.epsilon
    yield Promise(
        "sahu_linear_2025",
        "Theorem 3.2, DP-LSVI-UCB++",
        d * math.sqrt(H**3 * K) + private,
        None,
        "its own radii give K^(5/4), sharper ones K^(3/4): sqrt(K) is not proven",
    )
    K2, eps = math.sqrt(K), of.epsilon
    cited = math.sqrt(d**3 * H**4 * K)
    for name, value in (
        ("abstract", d * math.sqrt(H**3 * K) + H**4.5 * d ** (7 / 6) * K2 / eps),
        ("conclusion", math.sqrt(H**3 * K) + H ** (19 / 8) * d ** (15 / 8) * K**0.75 / eps),
        ("Ngo et al., as cited", cited + H**3 * d**1.25 * K2 / math.sqrt(eps)),
        ("Luyo et al., as cited", cited + H**2.2 * d**1.6 * K**0.6 / eps**0.4),
    ):
        yield Promise("sahu_linear_2025", f"{name}", value, None, "an order")


def _functional(of: TheoremSizes) -> Iterator[Promise]:
    """Proposition 10, which is false, and what holds for noise of the same sigma in S states."""
    setting, discount = functional.Setting(T=max(64, int(of.most))), 0.9
    sigma = functional.theorem_5_sigma(of.epsilon, of.delta / 2.0, setting)
    n, m = of.states, of.actions
    largest = sigma * normal_width(of.failure / (n * m)) / (1.0 - discount)
    yield Promise(
        "wang_functional_2019",
        "Proposition 10, mean loss of a value (not a regret), discount 0.9",
        2.0 * math.sqrt(2.0) * sigma / (math.sqrt(n * math.pi) * (1.0 - discount)),
        largest,
        "printed is false; corrected is max|z| / (1 - discount) at Theorem 5's sigma, not private",
    )


def _both(paper: str, theorem: str, rule: Callable[[bool], float]) -> Promise:
    return Promise(paper, theorem, rule(True), rule(False))
