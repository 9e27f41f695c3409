"""Which line of a paper is which line of the code, for the pages of docs/papers.

``python -m tests.papers.pages`` writes the tables again.
"""

import re
from pathlib import Path

from tacit import papers

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "papers"
SOURCES = ROOT / "src" / "tacit" / "papers"
NAMES = papers.__all__

_ANCHOR = re.compile(r"(Alg\. \d+|Sec\. [\d.]+\d), lines? (\d+)(?: to (\d+))?")
_START, _END = "<!-- lines of the paper -->", "<!-- end of lines -->"


def anchors(name):
    """The first line of the code, counted from 1, that names a line of an algorithm."""
    found = {}
    for number, line in enumerate((SOURCES / f"{name}.py").read_text().splitlines(), 1):
        for algorithm, first, last in _ANCHOR.findall(line):
            for of_paper in range(int(first), int(last or first) + 1):
                found.setdefault((algorithm, of_paper), number)
    return found


def table(name):
    """The table of a page: where in the file each line of an algorithm is."""
    rows = ["| in the paper | line of the paper: line of the file |", "|---|---|"]
    found = sorted(anchors(name).items())
    for algorithm in sorted({algorithm for (algorithm, _), _ in found}):
        words = algorithm.replace("Alg.", "Algorithm").replace("Sec.", "Section")
        places = [f"{line}: {at}" for (where, line), at in found if where == algorithm]
        rows.append(f"| {words} | {', '.join(places)} |")
    return "\n".join(rows)


def written(page, name):
    """A page with its table as it should be."""
    before, _, rest = page.partition(_START)
    _, _, after = rest.partition(_END)
    return f"{before}{_START}\n{table(name)}\n{_END}{after}"


if __name__ == "__main__":
    for each in NAMES:
        path = PAGES / f"{each}.md"
        path.write_text(written(path.read_text(), each))
