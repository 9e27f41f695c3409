"""Fits the shipped table of buffered Toeplitz factorisations anew."""

from __future__ import annotations

import json
from pathlib import Path

from research.blt_fit import TABLE_BUFFERS, TABLE_RELEASES, fit_blt
from tacit.privacy.counters import blt


def write_table(path: Path) -> None:
    """Fits every entry of the shipped table and writes it, one entry per line.

    Up to nine releases four buffers are optimal without a fit.
    """
    lengths = [n for n in TABLE_RELEASES if n > 2 * TABLE_BUFFERS + 1]
    fits = [fit_blt(n, TABLE_BUFFERS) for n in lengths]
    lines = [json.dumps({"releases": e.releases, "u": e.u, "v": e.v}) for e in fits]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    write_table(Path(blt.__file__).with_name(blt.TABLE_NAME))
