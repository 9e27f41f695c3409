"""Fits the shipped table of buffered Toeplitz factorisations anew."""

from __future__ import annotations

import json
from pathlib import Path

from tacit.privacy.counters.blt_fit import fit_blt_from_scratch

from tacit.privacy.counters import blt_fit


def write_table(path: Path) -> None:
    """Fits every entry of the shipped table from scratch and writes it, one entry per line."""
    entries = [
        fit_blt_from_scratch(n, d)
        for d in blt_fit.TABLE_BUFFERS
        for n in blt_fit.TABLE_RELEASES
        if n > 2 * d + 1
    ]
    lines = [json.dumps({"releases": e.releases, "u": e.u, "v": e.v}) for e in entries]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    write_table(Path(blt_fit.__file__).with_name(blt_fit.TABLE_NAME))
