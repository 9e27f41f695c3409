"""What holds for the command lines of all figures and tables."""

from __future__ import annotations

import json

import pytest

from tacit.simulation.result import Result

REFUSED = (
    *("--epsilon=0", "--epsilon=much", "--delta=1", "--users=0", "--seed=-1"),
    *("--output=picture.gif", "--output=/no/such/folder/demo.png", "--nonsense"),
)
"""What figures with a budget refuse."""


def curves(served, greedy, values, levels, seed=0, **more):
    """A run; levels are the optimal, the baseline's and the reference value."""
    optimal, baseline, reference = levels
    return Result(
        **{"agent": "a", "world": "w", "privacy": "p", "seed": seed, "served": list(served)},
        values=list(greedy if values is None else values),
        greedy_values=list(greedy),
        optimal_value=optimal,
        baseline_value=baseline,
        reference_value=reference,
        **more,
    )


def refused_in_one_line(main, arguments, capsys):
    """Arguments are refused; what is said."""
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("\n")
    assert printed.err.count("\n") == 1
    return printed.err


def names_what_it_refuses(main, arguments, tmp_path, capsys):
    """The first of some arguments is refused by its name, before a picture is made."""
    picture = tmp_path / "demo.png"
    said = refused_in_one_line(main, [f"--output={picture}", *arguments.split()], capsys)
    assert arguments.partition("=")[0].removeprefix("--") in said
    assert not picture.exists()


class TableChecks:
    """For a module of tables: ``only`` is one of them, whose title and first two rows are shown."""

    module = None
    only = title = row = ""

    def prepare(self, monkeypatch):
        """Before a table is measured."""

    def check(self, rows):
        """The first two rows, as plain values."""
        raise NotImplementedError

    def test_every_table_has_a_cell_for_each_of_its_heads(self):
        for make in self.module.TABLES.values():
            table = make()
            assert {len(case.cells) for case in table.cases} == {len(table.heads)}
            assert len({case.cells for case in table.cases}) == len(table.cases)

    @pytest.mark.parametrize("suffix", ["json", "md"])
    def test_a_table_is_printed_and_written(self, tmp_path, capsys, monkeypatch, suffix):
        self.prepare(monkeypatch)
        path = tmp_path / f"tables.{suffix}"
        given = ["--only", self.only, "--quick", "--runs=1", "--workers=1", f"--output={path}"]
        assert self.module.main(given) == 0
        printed = capsys.readouterr().out
        assert f"### {self.title}" in printed
        assert printed.count(f"\n| {self.row} ") == 2
        if suffix == "md":
            assert path.read_text().strip() in printed
        else:
            self.check(json.loads(path.read_text())["tables"][self.only])

    @pytest.mark.parametrize(
        "arguments", [["--output=a.txt"], ["--output=/no/such/folder/a.md"], ["--only", "this"]]
    )
    def test_bad_arguments_are_refused_in_one_line(self, capsys, arguments):
        refused_in_one_line(self.module.main, arguments, capsys)
