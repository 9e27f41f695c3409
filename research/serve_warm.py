"""A process of a service, for campaigns and benchmarks: imported once, begun again and again."""

from __future__ import annotations

import logging
import os
import time

import uvicorn
import uvicorn.protocols.http.auto

import tacit
from tacit.cli.serve import worker

# What every process needs is loaded here, before it is begun: most of a start.
_world = tacit.tabular.riverswim(3, 3)
_agent = tacit.UCBVI(_world.spec, 100_000, tacit.JointDP(1.0, 1e-7), schedule="fixed:size=20")


def serve(file: str, port: int, offset: float, log: str = os.devnull) -> None:
    """A process of the service, with a clock that is off, and a log."""
    real = time.time
    time.time = lambda: real() + offset
    logging.basicConfig(filename=log, level=logging.INFO, format="%(message)s")
    os.environ["TACIT_SERVE_FILE"] = file
    uvicorn.run(worker(), host="127.0.0.1", port=port, log_config=None, access_log=False)
