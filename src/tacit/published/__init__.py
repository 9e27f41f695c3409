"""Reads published policies. Needs NumPy alone: copy this folder to a device and use it there.

A published file is public: an npz archive of plain arrays, never pickled, or a JSON text of them
(``{"tacit": "policy", "arrays": {name: {"dtype", "shape", "data"}}}``, data in C order). All have
``format`` (this layout's version), ``version`` (which policy it is) and, but for tables, ``kind``:

* tables for finite worlds: ``n_actions``, and either ``actions`` of shape (horizon, states) or
  ``probabilities`` of shape (horizon, states, actions), and perhaps ``state_labels`` and
  ``action_labels``;
* ``"mixed"`` for several tables, of which a user follows one: the same with an axis of components
  in front, and ``weights`` to draw one by;
* ``"arms"`` for policies of any kind: ``parts``, the JSON text of each, and ``weights``;
* ``"gains"`` for control: ``gains``, (horizon, controls, states), and ``noise``;
* ``"q"`` for states that are vectors: ``weights`` (actions, features), ``epsilon``,
  ``preference``, and ``features`` with its parameters (see :func:`.policies.features`);
* ``"simulator"``: no policy, but draws of a released model (:mod:`.simulators`);
* ``"trial"``: ``mean`` and ``covariance`` of effects, and what chances need (:mod:`.trials`).

    policy = published.load("policy.npz")
    action = policy.act(step, state)  # a label where the state is given by one, "idle"

Those that draw need a generator as well, ``numpy.random.default_rng()``. A mixed one is drawn from
once per episode, ``policy = policy.drawn(rng)``, and the episode says ``policy.component``: what
does not is not counted.

Facts are read by :func:`about`: ``about``, a JSON object with guarantee, spec, date and maker;
``ledger_line`` and ``ledger_head``, number and hash of the last line that its ledger had; and
``hash``, that of all the rest (:func:`digest`), refused if it is wrong. ``signatures`` are texts
"public key:signature" of that hash (:func:`signer`).
"""

from __future__ import annotations

# By relative names: the folder is also shipped as a package of another name (clients/python).
from .policies import (
    Published,
    PublishedGains,
    PublishedMixed,
    PublishedPolicy,
    PublishedValues,
    draw,
)
from .reading import FORMAT, MOST_BYTES, about, check, check_mixed, contents, digest, load, signer
from .simulators import FiniteSimulator, PublishedSimulator, SimulatedEpisodes
from .trials import PublishedTrial, TrialHistory

__all__ = ["FORMAT", "MOST_BYTES", "about", "check", "check_mixed", "contents", "digest", "draw"]
__all__ += [
    "FiniteSimulator",
    "Published",
    "PublishedGains",
    "PublishedMixed",
    "PublishedPolicy",
    "PublishedSimulator",
    "SimulatedEpisodes",
]
__all__ += ["PublishedTrial", "PublishedValues", "TrialHistory", "load", "signer"]
