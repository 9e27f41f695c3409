"""Numbers of the page of errata, computed by the code that stands for the papers."""

import json
import math
from pathlib import Path

import pytest

from tacit.papers import chowdhury_tabular_2021 as tabular
from tacit.papers import zhou_mixture_2022 as mixture
from tacit.papers.result import Sizes
from tacit.privacy.budget import Budget
from tacit.privacy.noise import Noise

PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text().splitlines()


def cells(start):
    """The cells of the one row that begins so."""
    (row,) = [line for line in PAGE if line.startswith(start)]
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("power", [3, 4, 5, 6])
def test_the_tabular_factor_is_what_the_printed_noise_proves(power):
    K = 10**power
    sizes = Sizes(K, 10, (4, 2), 1.0, 0.0, 0.1, True, Noise(0))
    proven = tabular.central(sizes).proof.guarantee
    assert proven is not None
    m = math.ceil(math.log2(K))
    words = [str(m), f"{proven.epsilon:.2f}", f"{2 * m / math.log(K):.2f}"]
    assert cells(f"| {f'{K:,}'.replace(',', ' ')} |")[1:] == words


@pytest.mark.parametrize("H", [1, 5, 20])
def test_the_mixture_noise_proves_less_than_is_claimed(H):
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


def test_pages_have_the_stored_regrets():
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


DOCS = Path(__file__).parents[2] / "docs"
