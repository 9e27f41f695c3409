"""``tacit plot``: saved runs, drawn again, from one file or several."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli import options
from tacit.cli.options import asked, flag, given
from tacit.cli.output import print_table


def plot_command(
    files: Annotated[list[str], given("FILE...", "Saved runs.")],
    output: Annotated[
        str, asked("FILE", "The picture, as PNG, PDF or SVG by its end.")
    ] = "plot.png",
    by_world: Annotated[bool, flag("A row for every world.", "--by-world")] = False,
) -> None:
    """Draws saved runs."""
    from tacit.simulation.plots import plot_results
    from tacit.simulation.tables import load_results, merged, rows

    options.check_writable("--output", output, endings=options.PICTURES)
    whole = merged([load_results(file) for file in files])
    plot_results(whole, output, by_world=by_world)
    titles, *lines = rows(whole)
    print_table(titles, lines)
    typer.echo(f"The picture is {output}")
