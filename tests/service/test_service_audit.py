"""The audit through a running service: it passes, and finds what is planted in the service."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit.service.audit import audit_service

import tacit

RAW = """
from tacit.service import store
old = store.Change.ask
def ask(self, text, values=()):
    return old(self, text.replace(", body = NULL", ""), values)
store.Change.ask = ask
"""
LOG = """
from tacit.service import http
seen = http.Service.entitled
def entitled(self, request, *roles):
    print("request", dict(request.headers), flush=True)
    return seen(self, request, *roles)
http.Service.entitled = entitled
"""
TWICE = """
from tacit.service import curator
publish = curator.Curator._publish
def again(self, why, *, block=None, command=None):
    question = "SELECT event, person, block, version, body FROM episodes WHERE block = ?"
    rows = [] if block is None else self._store.ask(question, (block,))
    publish(self, why, block=block, command=command)
    if block == 0:
        with self._store.change(self._epoch) as change:
            version = change.serving["version"]
            for event, person, number, _, body in rows:
                row = (event + "x", person + "x", number + 1, version, body)
                change.ask("INSERT INTO episodes (event, person, block, version, state, body) "
                           "VALUES (?, ?, ?, ?, 'waiting', ?)", row)
            change.put(waiting=change.serving["waiting"] + len(rows))
curator.Curator._publish = again
"""
QUIET = """
from tacit.privacy.noise import Noise
steps = Noise.steps
Noise.steps = lambda self, pure, scale, count: steps(self, pure, scale, count) // 4
"""


def failed(folder: Path, blocks: int, before: str = "") -> set[str]:
    world, privacy = tacit.tabular.riverswim(3, 4), tacit.JointDP(1.0, 1e-6)
    found = audit_service("ucbvi", world, privacy, folder, blocks=blocks, before=before)
    return {outcome.name for outcome in found if outcome.failure is not None}


def test_raw_data_that_stays_and_tokens_in_a_log_are_found(tmp_path: Path) -> None:
    assert failed(tmp_path, 2, RAW + LOG) == {"nothing raw stays", "no secret in a log"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "name"), [(TWICE, "one release per block"), (QUIET, "noise over HTTP")]
)
def test_other_planted_bugs_are_found(tmp_path: Path, before: str, name: str) -> None:
    assert name in failed(tmp_path, 12, before)


@pytest.mark.slow
def test_the_audit_through_the_service_passes(tmp_path: Path) -> None:
    assert failed(tmp_path, 60) == set()
