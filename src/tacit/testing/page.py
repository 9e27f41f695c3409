"""The report of an audit as one HTML file, pictures included."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape

import numpy as np

from tacit.privacy.storage import write_atomic
from tacit.testing.audit_report import FALSE_ALARM, AgentAudit, Transcript


def write_page(audit: AgentAudit, path: str) -> None:
    """Writes the report as one HTML file, pictures included."""
    write_atomic(path, page(audit).encode(), 0o644)


def page(audit: AgentAudit) -> str:
    """The report as HTML."""
    verdict = "pass" if audit.passed else "fail"
    attacked = []
    for s in audit.statistics:
        found = "" if math.isnan(s.found) else f"{s.found:.5g}"
        attacked.append((s.name, f"{s.declared:.5g}", found, s.failure or "pass"))
    parts = [
        f"<h1>Audit of {escape(audit.agent)} on {escape(audit.world)}: "
        f"<span class='{verdict}'>{verdict}</span></h1><p>{escape(str(audit.guarantee))}</p>"
        f"<p>Audited as {escape(audit.privacy)}: {audit.passages:,} releases through the gate, "
        f"{audit.releases:,} policies published.</p>"
    ]
    if audit.failures:
        wrong = "".join(f"<li>{escape(words)}</li>" for words in audit.failures)
        parts.append(f"<h2>What is wrong</h2><ul>{wrong}</ul>")
    parts.append("<h2>Sensitivities under attack</h2>")
    parts.append(_table(attacked, ("statistic", "declared", "largest found", "")))
    for t in audit.transcripts:
        parts.append(f"<h2>A user of block {t.block}</h2>{_table(_numbers(t))}")
        parts.append(f'<img alt="privacy losses" src="data:image/png;base64,{_picture(t)}">')
    if audit.outcomes:
        made = [(o.name, o.verdict, o.reason or "") for o in audit.outcomes]
        parts.append("<h2>Behaviour</h2>" + _table(made, ("check", "", "")))
    parts.append(
        "<p>A pass is no proof; the proof is in the documentation of each statistic. An agent "
        f"that does what it says fails with a probability below {FALSE_ALARM:g}.</p>"
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>Audit of {escape(audit.agent)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>"
    )


def _numbers(t: Transcript) -> list[tuple[str, str]]:
    return [
        (f"claimed {t.unit}", f"{t.claimed:.5g}"),
        (f"{t.unit} of any two users, at most, by the claimed noise", f"{t.bound:.5g}"),
        (f"{t.unit} of the worst two found, by the claimed noise", f"{t.accounted:.5g}"),
        (f"{t.unit} of these two, by the measured noise", f"{t.estimate:.5g}"),
        ("measured over claimed variance of the noise", f"{t.noise_ratio:.5g}"),
        (
            "measured over claimed variance of the privacy loss",
            "not Gaussian" if math.isnan(t.along) else f"{t.along:.5g}",
        ),
        ("values of noise", f"{t.noise_values:,}"),
        ("lower bound from outside", str(t.outside)),
        ("runs with each of the two users", f"{t.runs:,}"),
    ]


def _table(rows: Sequence[Sequence[object]], head: Sequence[str] = ()) -> str:
    cells = ["".join(f"<th>{name}</th>" for name in head)] if head else []
    cells += ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;"
    "color:#222}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem .2rem 0;"
    "text-align:left;border-bottom:1px solid #ddd;vertical-align:top}img{max-width:100%}"
    ".pass{color:#00755a}.fail{color:#b3261e}"
)


def _picture(transcript: Transcript) -> str:
    """Losses of both kinds of runs against what is claimed, as a PNG in base64."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    pairs = (
        (transcript.losses, "#0072B2", "one of the two", 1.0),
        (-transcript.other_losses, "#D55E00", "the other", -1.0),
    )
    spread = max(float(np.std(losses)) for losses, *_ in pairs) or 1.0
    both = np.concatenate([losses for losses, *_ in pairs])
    ends = float(both.min()) - spread / 2, float(both.max()) + spread / 2
    grid = np.linspace(*ends, 400)
    for losses, colour, label, sign in pairs:
        axes.hist(losses, bins=40, range=ends, density=True, color=colour, alpha=0.35, label=label)
        if not transcript.pure:
            mu = transcript.claimed
            density = np.exp(-0.5 * ((grid - sign * mu**2 / 2) / mu) ** 2)
            axes.plot(grid, density / (mu * np.sqrt(2 * np.pi)), color=colour)
    axes.set_xlabel("log-likelihood ratio of a run; lines: the claimed distribution")
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return base64.b64encode(buffer.getvalue()).decode()
