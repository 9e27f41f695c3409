"""What it costs that nobody is trusted: the stored table, and the page."""

from __future__ import annotations

import json

from research import distributed
from tacit.simulation.result import median

FOUND = json.loads(distributed.STORED.read_text())


def test_nobody_trusted_costs_at_most_half_as_many_users_again() -> None:
    for world in distributed.WORLDS:
        medians = {model: median(FOUND[world][model]) for model in distributed.MODELS}
        joint, nearly, local = (
            medians["joint"],
            medians["distributed, 95 % honest"],
            medians["local"],
        )
        assert joint is not None
        assert nearly is not None
        assert local is not None
        assert nearly <= 1.5 * joint
        assert local > 1000 * joint
