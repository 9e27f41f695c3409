"""The demo: its printed errors are the promised ones, its picture is made, it refuses in a line."""

import io
import itertools
import math
from contextlib import redirect_stdout

import numpy as np
import pytest

import tacit
from research.running_count import GAUSSIAN, LAPLACE, main, make_curves, make_stream
from tests.research.commands import REFUSED, names_what_it_refuses

RELEASES = 32
RUNS = 600
ROWS = [("Gaussian", kind) for kind in GAUSSIAN] + [("Laplace", kind) for kind in LAPLACE]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One run of the command line: what it printed, and its picture."""
    picture = tmp_path_factory.mktemp("demo") / "demo.png"
    arguments = ["--users=5000", f"--releases={RELEASES}", f"--runs={RUNS}"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", "100")
        assert main([f"--output={picture}", *arguments]) == 0
    return printed.getvalue(), picture


def printed_rows(text):
    rows = {}
    for line in text.splitlines():
        if line.startswith("│"):
            noise, kind, *numbers = (cell.strip() for cell in line.strip("│").split("│"))
            rows[noise, kind] = [float(number.replace(",", "")) for number in numbers]
    return rows


def test_the_table_has_every_counter_once(demo):
    assert list(printed_rows(demo[0])) == ROWS


@pytest.mark.parametrize(("noise", "kind"), ROWS)
def test_printed_errors_agree_with_the_promised_noise(demo, noise, kind):
    """Within five standard deviations; all six together fail by chance with less than 1e-4.

    A run's mean squared error is z' M z for unit noise z of excess kurtosis k (0 for Gaussian, 3
    for Laplace noise) and a positive M, so its variance is at most (2 + k) times its squared mean,
    and that of the mean of the runs this much over RUNS. The mean of 600 runs is nearly normal.
    """
    end, promised, observed, _ = printed_rows(demo[0])[noise, kind]
    budget = tacit.Budget(1.0, 1e-6 if noise == "Gaussian" else 0.0)
    std = tacit.counter(budget, 1.0, RELEASES, kind=kind).std
    assert end == pytest.approx(std[-1], rel=1e-3)
    assert promised == pytest.approx(math.sqrt(np.mean(std**2)), rel=1e-3)
    deviation = math.sqrt((2 if noise == "Gaussian" else 5) / RUNS)
    assert (observed / promised) ** 2 == pytest.approx(1.0, abs=5 * deviation)


def test_no_two_runs_and_no_two_counters_share_noise():
    """The noise of blocks is seen as it is drawn, in the steps from release to release."""
    budget, pure = tacit.Budget(1.0, 1e-6), tacit.Budget(1.0, 0.0)
    made = list(make_curves(make_stream(500, 50, 0), budget, pure, runs=3, seed=0))
    blocks = [curve for curve in made if curve.kind == "blocks"]
    drawn = np.concatenate([np.diff(c.errors, prepend=0.0) / c.std[0] for c in blocks])
    # On a grid numbers of equal noise may coincide, whole rows may not.
    for one, other in itertools.combinations(drawn, 2):
        assert (np.abs(one - other) > 1e-9).mean() > 0.9
    assert drawn.shape == (2 * 3, 50)


def test_the_picture_is_a_png(demo):
    assert demo[1].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert demo[1].stat().st_size > 10_000


def test_it_says_what_is_picked_what_is_proven_and_what_it_means(demo):
    text = " ".join(demo[0].split())
    assert "picks, for (1, 1e-06): optimal" in text
    assert "picks, for (1, 0): smooth tree" in text
    assert "Simulation only" in text
    assert "(1, 1e-06)-joint differential privacy" in text
    assert "In plain words: 5,000 users counted" in text


def test_the_same_seed_gives_the_same_and_another_seed_another(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def printed(seed):
        size = ["--users=40", "--releases=8", "--runs=2"]
        main([f"--output={tmp_path / 'a.png'}", *size, f"--seed={seed}"])
        return capsys.readouterr().out

    first = printed(3)
    picture = (tmp_path / "a.png").read_bytes()
    assert printed(3) == first
    assert (tmp_path / "a.png").read_bytes() == picture
    assert printed_rows(printed(4)) != printed_rows(first)


def test_every_user_is_in_one_item():
    stream = make_stream(1003, 10, 0)
    blocks = np.diff(stream.served, prepend=0)
    assert blocks.sum() == 1003
    assert set(blocks) == {100, 101}
    assert np.all(stream.items >= 0)
    assert np.all(stream.items <= blocks)


@pytest.mark.parametrize(("users", "releases", "epsilon"), [(1, 1, 1), (100, 2, 1e-3), (7, 7, 1e4)])
def test_small_and_extreme_runs_are_drawn(tmp_path, capsys, users, releases, epsilon):
    picture = tmp_path / "small.png"
    arguments = [f"--users={users}", f"--releases={releases}", f"--epsilon={epsilon}", "--runs=1"]
    assert main([f"--output={picture}", *arguments]) == 0
    assert picture.exists()
    assert "In plain words" in capsys.readouterr().out


MORE = (
    "--epsilon=-1",
    "--epsilon=nan",
    "--delta=0",
    "--users=10 --releases=11",
    "--users=1.5",
    "--releases=0",
    "--runs=0",
)


@pytest.mark.parametrize("arguments", [*REFUSED, *MORE])
def test_bad_arguments_are_refused_in_one_line(tmp_path, capsys, arguments):
    names_what_it_refuses(main, arguments, tmp_path, capsys)
