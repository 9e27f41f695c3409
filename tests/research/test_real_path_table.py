"""Bugs of the real path: the rows, and one audit of one of them."""

import pytest

from research import real_path_table
from research.planted.real_path import REAL_PATH


def test_bugs_have_names_of_their_own_and_say_what_they_do():
    rows = [(bug.name, bug.agent, bug.privacy) for bug in REAL_PATH]
    assert len(REAL_PATH) >= 44
    assert len({str(row) for row in rows}) == len(rows)
    assert {bug.kind for bug in REAL_PATH} == set("abcdefghi")
    assert all(bug.what for bug in REAL_PATH)


@pytest.mark.slow
def test_a_bug_of_the_sampler_is_found(capsys):
    real_path_table.main(["--only", "ScaleIsPowerOfTwo"])
    assert "caught" in capsys.readouterr().out.replace("not caught", "")
