"""An agent under fire: what the page says is what is stored, and nothing went wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.hostile import owner
from research.hostile.owner_run import Tally

PAGE = owner.PAGE
COUNTED = ("lost_runs", "users_twice", "unpaid", "wrong_receipts")


def test_the_page_shows_what_is_stored() -> None:
    assert "\n".join(owner.table()) in PAGE.read_text()


def test_nothing_that_was_tried_went_wrong() -> None:
    stored = json.loads(owner.STORED.read_text())
    assert stored.keys() <= owner.parts().keys()
    for name, row in stored.items():
        assert not any(row[counted] for counted in COUNTED), (name, row["problems"])
        assert row["tried"] > 0
    # As many blocks at least came through as were lost: the blows were aimed, and not all alike.
    signals = stored["signals"]
    assert signals["blocks"] > signals["lost_blocks"] > 0
    assert signals["hit"] >= signals["in_learn"] + signals["in_save"] + signals["in_load"] - 1
    assert min(signals["in_learn"], signals["in_save"], signals["in_load"]) > 0.05 * signals["hit"]


def test_parts_add_up_and_go_on_where_they_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = list[int]()

    def part(n: int) -> tuple[Tally, bool]:
        asked.append(n)
        return Tally(tried=2, hit=1, problems=[str(n)]), n == 2

    monkeypatch.setattr(owner, "STORED", tmp_path / "stored.json")
    monkeypatch.setattr(owner, "parts", lambda: {"learn": part})
    owner.store(["learn"])
    owner.store([])
    assert asked == [0, 1, 2]
    row = json.loads((tmp_path / "stored.json").read_text())["learn"]
    assert (row["tried"], row["hit"], row["problems"]) == (6, 3, ["0", "1", "2"])
    assert owner.table()[2:] == [
        "| an exception at every line of `learn` | 3 | - | - | 0 | 0 | 0 | 0 |"
    ]
