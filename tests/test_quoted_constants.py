"""Constants that pages quote are those of the code: a change of one is a change of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.continuous import estimate as functional_estimate
from tacit.continuous import fitted_functional_q
from tacit.continuous.estimate import GRID, MAP
from tacit.linear import estimate, lsvi_ucb
from tacit.lq import certainty_equivalence as lq
from tacit.lq.estimate import MODEL_ERROR
from tacit.mixture import estimate as mixture_estimate
from tacit.mixture import statistics as mixture_statistics
from tacit.tabular import count_estimate, policy_improvement, sum_algorithm, ucbpo, ucbvi

DOCS = Path(__file__).parents[1] / "docs"
GROWTH = sum_algorithm.SumOptions().growth
MIRROR = ucbpo.MirrorOptions()
NUMBERS = {2: "two", 4: "four", 8: "eight"}
IMPROVEMENT = policy_improvement.ImprovementConstants()


def bare(x: float) -> str:
    """Without the zero in front.

    >>> bare(0.13), bare(4.2)
    ('.13', '4.2')
    """
    return f"{x:g}".removeprefix("0")


def grown(factor: float) -> str:
    """By how much something grows.

    >>> grown(1.15)
    '15 %'
    """
    return f"{100 * (factor - 1):.0f} %"


QUOTED = {
    "algorithms/ucbpo.md": [
        f"(probabilities below {ucbpo._FLOOR:g} are raised",
        f"`eta` is {MIRROR.eta:g} in the first step of a release and a tenth larger in each next",
        f"`error` = {MIRROR.error:g} times the release's statistical width",
        f"after `steps` = {MIRROR.steps} of them",
    ],
    "algorithms/linopt_po.md": [
        f"`error` = {MIRROR.error:g} times the statistical width",
        f"or after `steps` = {MIRROR.steps}",
        f"raised to {ucbpo._FLOOR:g} at each release",
    ],
    "algorithms/ucbvi.md": [
        f"bonus = {ucbvi.SAMPLING:g} sqrt(2 ln(cells / 0.05))",
        f"+ {ucbvi.RANGE_TERM:g} (steps left) / n'",
        f"disjoint blocks that grow by {grown(ucbvi.GROWTH)}",
        "known if n exceeds half of sigma sqrt(S) (twice that, where counts are not masked)",
        f"The first block has {ucbvi.FIRST:g} times",
        f"at most {grown(ucbvi.GROWTH)} of all users served",
        f"weight sqrt({ucbvi.REWARD_WEIGHT:g})",
        f"only a user's first {NUMBERS[ucbvi.CAP]} steps in each (s, a) count",
        f"over {NUMBERS[ucbvi.CAPPED_UP_TO]} times the smallest useful size",
        f"solves H S equations, up to {count_estimate._LARGEST_FLOW:,} of them",
    ],
    "algorithms/policy_improvement.md": [
        f"a user's first {IMPROVEMENT.first} states get her return",
        f"a length of at most {IMPROVEMENT.length:g} R",
        f"Blocks of more than {policy_improvement._IN_MEMORY:,}",
    ],
    "algorithms/lsvi_ucb.md": [
        f"grow by {grown(GROWTH)} of the users served",
        f"standard deviations of sampling and noise, times {lsvi_ucb._BONUS:g}, and what the",
        f"pooled and capped at {estimate._CAP} |",
        f"bonus^2 = {lsvi_ucb._BONUS**2:g} (var(V)",
        "The first is four times as large as the noise of a sum",
        "| ridge 1 | 1 plus the noise of the Gram times sqrt(d)",
    ],
    "algorithms/linopt_vi.md": [
        f"grow by {grown(GROWTH)} of the users served",
        f"standard deviations of sampling and noise, times {mixture_estimate._BONUS:g} |",
        f"bonus^2 = {mixture_estimate._BONUS**2:g} (R^2 / 2",
        "The first is four times as large as the noise of a sum, eight times for counts",
        f"Blocks over {NUMBERS[sum_algorithm._CLIPPED_UP_TO]} times the smallest useful one, "
        f"or over {sum_algorithm._ONE_BY_ONE:,} users",
        f"pairs of possible steps up to {mixture_statistics._MOST_STEPS:,} steps",
    ],
    "mixture.md": [
        f"Widths are {mixture_estimate._BONUS:g} times the standard deviation that sampling and "
        "noise give to an expected next value (once for counts)",
    ],
    "algorithms/certainty_equivalence.md": [
        f"equal ones of {lq.FIRST:g} (n + d) / mu users, then {grown(lq.GROWTH)} of the users",
        f"({100 * MODEL_ERROR:.0f} % error of the prediction)",
        f"entries of {lq.PRIOR:g} norm_bound / sqrt(n (n + d))",
        f"more than {lq.SURPRISE:g} standard deviations of a chi-square off",
        f"{lq.SAMPLES} models of the posterior, {lq.CAUTION:g} times as wide",
        f"1 in {100 * lq.CONFIDENCE:.0f} % of them, and at most {lq.WORST:g} in all",
    ],
    "lq.md": [
        f"{lq.SAMPLES} models, drawn from the posterior widened by {lq.CAUTION:g}",
        f"they must beat zero control in {100 * lq.CONFIDENCE:.0f} % of them",
    ],
    "algorithms/fitted_functional_q.md": [
        f"length {GRID.visits_clip:g} sqrt(H) (grid), {bare(MAP.visits_clip)} H (maps)",
        f"| {100 * GRID.visits:.0f} % (grid), {100 * MAP.visits:.0f} % (maps) |",
        f"the rest, {grown(GRID.growth)} more from sweep to sweep",
        f"smooth in s (length {bare(GRID.prior_length)} of the box)",
        f"{bare(GRID.prior_reward)}^2 + ({bare(GRID.prior_moves)} discount)^2",
        f"kept above {'a fifth' if functional_estimate._RAREST == 0.2 else '?'} of even",
        f"| sweeps J | {GRID.depth:g} S^{bare(GRID.depth_power)}, from {GRID.fewest} to",
        f"| clip c | {bare(GRID.clip)} sqrt(S), at most {bare(GRID.largest_clip)}, times sqrt(H)",
        f"on maps {bare(MAP.clip)} and {bare(MAP.largest_clip)} |",
        f"On maps the last {'five' if MAP.averaged == 5 else '?'} Qs are averaged",
        f"with probability {bare(fitted_functional_q.EPSILON)} any action",
        f"({bare(GRID.prior_drift)} of the range)",
    ],
}


@pytest.mark.parametrize("page", QUOTED)
def test_a_page_quotes_the_code(page: str) -> None:
    words = " ".join((DOCS / page).read_text().split())
    missing = [quote for quote in QUOTED[page] if " ".join(quote.split()) not in words]
    assert missing == []
