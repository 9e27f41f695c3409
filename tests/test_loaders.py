"""Hostile files on everything that reads files, each with little memory and little time."""

from __future__ import annotations

import os
import resource
import tracemalloc
from pathlib import Path

import pytest

import tacit
from research.hostile import loaders
from research.hostile.files import FileCase, file_cases
from research.hostile.fuzzing import Broken
from research.hostile.hand_made import hand_made
from research.hostile.loaders import Reading, campaign, made_files, mutation
from tacit import published
from tacit.data.logs import LogFormat, files_of
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.service.app_file import read_app

pytestmark = pytest.mark.skipif(not loaders._USED.exists(), reason="limits need Linux")


def test_files_made_by_hand_break_nothing() -> None:
    assert len(made_files()) > 300
    tally = campaign(len(made_files()), 0, made=True)
    assert tally.broken == []
    assert tally.refused >= tally.tried - 1 == len(made_files()) - 1


def test_mutated_files_break_nothing() -> None:
    tally = campaign(400, 7)
    assert tally.broken == []
    assert tally.tried == 400
    assert tally.refused > 250


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_mutated_files_break_nothing(seed: int) -> None:
    tally = campaign(25_000, seed)
    assert tally.broken == []
    assert tally.tried == 25_000


def test_every_loader_is_attacked() -> None:
    names = " ".join(case.name for case in file_cases())
    for name in ("Result", "load_results", ".toml", ".json", "Policy"):
        assert name in names
    # Published policies of every kind that is a family's.
    assert sum(case.name.startswith("published") for case in file_cases()) >= 3


def test_files_of_an_app_are_regular_ones_too(tmp_path: Path) -> None:
    """Its description and its logs: nobody waits for a FIFO, and nothing nested fills the stack."""
    fifo, deep = tmp_path / "logs.csv", tmp_path / "app.toml"
    os.mkfifo(fifo)
    deep.write_text("x = " + "[" * 5_000 + "]" * 5_000)
    log = LogFormat(horizon=2)
    with pytest.raises(CorruptFile, match="not a regular file"):
        read_app(os.fspath(fifo))
    with pytest.raises(CorruptFile, match="not a regular file"):
        next(log.file_episodes(os.fspath(fifo), 10, grouped=True))
    with pytest.raises(CorruptFile, match="not a regular file"):
        files_of(fifo)
    with pytest.raises(InvalidArgument, match="nested"):
        read_app(os.fspath(deep))


def test_a_number_of_actions_takes_no_memory(tmp_path: Path) -> None:
    """A file of a kilobyte that names more actions than there is memory for."""
    path = tmp_path / "policy"
    tacit.Policy.deterministic([[0, 1], [1, 0]], 10**6).publish(path)
    tracemalloc.start()
    policy = published.load(path)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert policy.act(0, 1) == 1


def reading(read, typed=(ValueError,)) -> Reading:
    case = FileCase("x", lambda path: None, read, lambda *given: b"", typed)
    return Reading(case, "file", hand_made("", "")["nothing"])


def test_what_breaks_is_seen(tmp_path: Path) -> None:
    def hog(path: Path) -> None:
        try:
            bytearray(10**15)
        except MemoryError as error:
            raise ValueError("typed, and too late") from error

    with pytest.raises(MemoryError):
        reading(hog).attempt(tmp_path)
    with pytest.raises(KeyError):
        reading(lambda path: {}["a"]).attempt(tmp_path)
    with pytest.raises(Broken):
        reading(_broken).attempt(tmp_path)
    assert reading(lambda path: int("a")).attempt(tmp_path).startswith("invalid literal")
    assert reading(lambda path: None).attempt(tmp_path) is None


def _broken(path: Path) -> None:
    raise Broken("changed")


def test_a_process_that_ends_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A loader that never returns costs its own file, not the rest."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n"
        'case "$1" in --work) work=$2;; --start) start=$2;; esac\n'
        'shift; done\nif [ "$start" = 0 ]; then echo 3 1 > "$work/reached"; kill -ALRM $$; fi\n'
        'echo 10 4 > "$work/reached"\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))
    tally = campaign(10, 0)
    assert (tally.tried, tally.refused, len(tally.broken)) == (10, 5, 1)
    assert "file 3: ended the process" in tally.broken[0]
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_mutation_can_be_made_again(tmp_path: Path) -> None:
    cases = [case for case in file_cases() if "load_world" in case.name]
    for index in range(20):
        first, second = (mutation(index, 3, cases).put(tmp_path).read_bytes() for _ in range(2))
        assert first == second
