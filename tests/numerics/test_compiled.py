"""Loops are compiled once, and whoever waits for it is told."""

import io
import sys

import numba

from tacit.cli import doctor
from tacit.numerics import compiled
from tacit.registry import choose_agent, world_entry


class Terminal(io.StringIO):
    def isatty(self):
        return True


def add(x, y):
    return x + y


def test_a_terminal_is_told_which_loops_are_compiled(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(compiled.NOTICE, "compiled", 0)
    loop = numba.njit(add)
    loop(1, 2)  # not ours
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(add, "__module__", "tacit.somewhere")
    loop(1.0, 2.0)
    loop(3.0, 4.0)
    loop(1, 2.0)
    first, *others = sys.stderr.getvalue().splitlines()
    assert "once on this machine" in first
    assert others == ["  1. somewhere.add", "  2. somewhere.add"]


def test_nobody_else_is_told(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(add, "__module__", "tacit.somewhere")
    numba.njit(add)(1, 2)
    assert sys.stderr.getvalue() == ""


def test_what_is_compiled_ahead_exists():
    runs = [run for kind in doctor._RUNS.values() for run in kind.split(",")]
    assert len(runs) > 10
    for world, agent, _, _ in map(str.split, runs):
        assert world_entry(world.partition(":")[0])
        assert choose_agent(agent)
