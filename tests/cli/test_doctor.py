"""``tacit doctor``: this machine, and machines that are broken."""

from __future__ import annotations

import json

from tacit.cli import doctor
from tests.cli.calls import call, content


def test_the_doctor_finds_this_machine_well():
    made = content(call("doctor", "--json"))
    states = {check["name"]: check["state"] for check in made["checks"]}
    assert made["healthy"] is True
    assert {"numpy", "compiler cache", "a private agent", "pyarrow"} <= set(states)
    assert "failed" not in states.values()


def test_the_doctor_says_what_is_broken(monkeypatch):
    def broken(title):
        raise RuntimeError("no paper left")

    monkeypatch.setattr(doctor, "_CHECKS", {"plots": broken})
    monkeypatch.setattr(doctor, "REQUIRED", ("numpy", "no-such-package"))
    outcome = call("doctor")
    assert outcome.exit_code == 1
    assert "no paper left" in outcome.stdout
    assert "Broken: no-such-package, plots." in " ".join(outcome.stdout.split())
    made = json.loads(call("doctor", "--json").stdout)
    assert made["healthy"] is False


def test_the_doctor_tells_what_is_optional_from_what_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "_CHECKS", {})
    monkeypatch.setattr(doctor, "OPTIONAL", {"no-such": "nothing"})
    made = content(call("doctor", "--json"))
    assert made["healthy"]
    last = {"name": "no-such", "state": "missing", "detail": "optional, for nothing"}
    assert made["checks"][-1] == last
