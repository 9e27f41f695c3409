"""Whether somebody who has an app's shared token learns by the clock who took part.

``python -m research.hostile.membership`` asks a service for people who took part and for people who
did not, in turn, and compares the times of the answers by the chance that one of the first is the
longer (0.5: no difference). As a control it asks again where answers are not held to whole tenths
of a second. It writes ``research/membership.json``.
"""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu, norm

from research.campaign.servers import app_text
from tacit.service import http
from tacit.service.app_file import read_app
from tacit.service.client import Client
from tacit.service.tokens import new_token

OUTPUT = Path(__file__).parents[1] / "membership.json"
EACH, CONNECTIONS = 1000, 1
ALPHA, POWER = 1e-3, 0.99


def body(client: Client, user: str) -> dict[str, Any]:
    """An episode with a place of its own; each has an event of its own."""
    client._spent = True
    client.policy()
    raw = {"states": [0, 1, 2, 0], "actions": [0, 1, 0], "rewards": [0, 1, 0]}
    return raw | {"user": user, "event": secrets.token_hex(8), "ticket": client._ticket}


def times(address: str, token: str, each: int) -> dict[bool, list[float]]:
    """Seconds until the answer, for people who took part and who did not."""
    found: dict[bool, list[float]] = {True: [], False: []}

    def ask(number: int) -> None:
        client, rng = Client(address, token), np.random.default_rng(number)
        for _ in range(each // CONNECTIONS):
            for took_part in rng.permutation([True, False]):
                sent = body(client, "ann" if took_part else secrets.token_hex(8))
                begun = time.perf_counter()
                told = client.post("/v1/episodes", sent)
                found[bool(took_part)].append(time.perf_counter() - begun)
                if told["status"] != "received":
                    raise ValueError(f"answered {told}")
        client.close()

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def compared(found: dict[bool, list[float]]) -> dict[str, float]:
    """The chance that an answer about somebody who took part is the longer, and what would show."""
    members, others = found[True], found[False]
    test = mannwhitneyu(members, others)
    n, m = len(members), len(others)
    deviation = math.sqrt((n + m + 1) / (12 * n * m))
    seen = (norm.isf(ALPHA / 2) + norm.isf(1 - POWER)) * deviation
    chance = float(test.statistic / (n * m))
    return {"each": n, "chance": chance, "p": float(test.pvalue), "would_show": 0.5 + float(seen)}


def measured(pace: float, each: int) -> dict[str, float]:
    """One comparison, of a service without people's own tokens."""
    from tests.service.running import running

    http._PACE = pace
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "app.toml"
        text = app_text("ucbvi", "joint", 10**6, "app.db").replace("size=24", "size=500000")
        lines = [line for line in text.splitlines() if not line.startswith(("jwks", "audience"))]
        file.write_text("\n".join(lines).replace("window = 4", "window = 86400"))
        with running(read_app(str(file), logs=False)) as run:
            token = new_token(run.service.store, "device")
            run.service.watch()
            client = Client(run.address, token)
            client.post("/v1/episodes", body(client, "ann"))
            found = times(run.address, token, each)
            client.close()
            with sqlite3.connect(Path(name) / "app.db") as db:
                people = db.execute("SELECT COUNT(DISTINCT person) FROM people").fetchone()[0]
            if people != 1 + len(found[False]):
                raise ValueError("who took part was not taken again, or somebody was lost")
    return compared(found)


def main() -> None:
    """Writes both comparisons."""
    told = {"held": measured(http._PACE, EACH), "control": measured(1e-6, EACH)}
    OUTPUT.write_text(json.dumps(told, indent=1) + "\n")
    print(OUTPUT.read_text())


if __name__ == "__main__":
    main()
