"""What is recorded: agents, each in a world, for some users, under a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from research.audit_table import FAMILY_OPTIONS, WORLDS

MODELS: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "joint": {"kind": "joint", "epsilon": 1.0, "delta": 1e-6},
    "joint, real": {"kind": "joint", "epsilon": 1.0, "delta": 1e-6, "real": True},
    "joint, pure": {"kind": "joint", "epsilon": 1.0, "delta": 0.0},
    "local": {"kind": "local", "epsilon": 4.0, "delta": 1e-6},
    "local, pure": {"kind": "local", "epsilon": 4.0, "delta": 0.0},
    "local, randomised response": {
        "kind": "local",
        "epsilon": 4.0,
        "delta": 0.0,
        "mechanism": "randomised response",
    },
}
"""Every agent is asked to run under all of these."""

OTHER_MODELS: dict[str, dict[str, Any]] = {
    "joint, pure, real": {"kind": "joint", "epsilon": 1.0, "delta": 0.0, "real": True},
    "joint, zero-out": {"kind": "joint", "epsilon": 1.0, "delta": 1e-6, "relation": "zero-out"},
    "joint, large budget": {"kind": "joint", "epsilon": 20.0, "delta": 1e-3},
    "joint, two episodes": {
        "kind": "joint",
        "epsilon": 2.0,
        "delta": 1e-6,
        "episodes_per_user": 2,
    },
    "joint, two disjoint episodes": {
        "kind": "joint",
        "epsilon": 2.0,
        "delta": 1e-6,
        "episodes_per_user": 2,
        "disjoint": True,
    },
    "local, two episodes": {
        "kind": "local",
        "epsilon": 8.0,
        "delta": 1e-6,
        "episodes_per_user": 2,
    },
    "local, large budget": {"kind": "local", "epsilon": 50.0, "delta": 1e-3},
}
"""Some agents run under these as well."""

AGENTS: dict[str, tuple[str, ...]] = {
    "tabular": (
        "ucbvi",
        "ucbpo",
        "pucb",
        "ldpob",
        *FAMILY_OPTIONS["tabular"],
        "ucbvi:schedule=fixed:size=100",
        "ucbpo:schedule=fixed:size=100",
        "pucb:schedule=fixed:size=100",
        "ldpob:schedule=fixed:size=100",
    ),
    "linear": (
        "lsvi_ucb",
        "lsvi_ucb_plus_plus",
        "adaptive_lsvi_ucb",
        "batched_lsvi_ucb",
        *FAMILY_OPTIONS["linear"],
        "lsvi_ucb:schedule=fixed:size=100",
        "lsvi_ucb_plus_plus:schedule=fixed:size=100",
    ),
    "mixture": (
        "linopt_vi",
        "linopt_po",
        "ldp_ucrl_vtr",
        *FAMILY_OPTIONS["mixture"],
        "linopt_vi:schedule=fixed:size=100",
        "linopt_po:schedule=fixed:size=100",
    ),
    "lq": (
        "certainty_equivalence",
        *FAMILY_OPTIONS["lq"],
        "certainty_equivalence:schedule=fixed:size=50",
    ),
    "continuous": (
        "fitted_functional_q",
        "functional_q",
        "input_perturbation",
        "output_perturbation",
        "private_policy_evaluation",
        "deep_q:steps=6",
        *FAMILY_OPTIONS["continuous"],
    ),
}
"""Every agent that has a name, and options that change what is asked or how noise is added."""

USERS = {"tabular": 400, "linear": 400, "mixture": 400, "lq": 200, "continuous": 60}
"""How many users the short runs are for."""

PLAIN_USERS = 100
"""At most so many without privacy, where every user is a release."""


@dataclass(frozen=True)
class Row:
    """One agent under one model.

    Attributes:
        agent: with its options.
        world: with its options.
        users: how many are declared.
        model: its name.
        ids: whether users have ids, and two episodes each.
        reports: whether devices report, besides.
        slow: whether it takes long.
        privacy: the arguments of the model.
    """

    agent: str
    world: str
    users: int
    model: str
    ids: bool = False
    reports: bool = False
    slow: bool = False
    privacy: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """Unlike that of any other row."""
        ids = ", ids" if self.ids else ""
        return f"{self.agent} | {self.world} | {self.users} | {self.model}{ids}"


def row(agent: str, world: str, users: int, model: str, **more: Any) -> Row:
    """A row by the name of its model; real noise of many small releases takes long."""
    if model == "joint, real" and agent.startswith(("deep_q", "input_perturbation")):
        more["slow"] = True
    return Row(agent, world, users, model, privacy=(MODELS | OTHER_MODELS)[model], **more)


SAMPLED = {
    "tabular": ("ucbvi", "ucbpo", "pucb"),
    "linear": ("lsvi_ucb", "lsvi_ucb_plus_plus"),
    "mixture": ("linopt_vi", "linopt_po"),
    "lq": ("certainty_equivalence",),
    "continuous": ("fitted_functional_q", "functional_q"),
}
"""These run under the other models too."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "tabular": (
        "ucbpo:steps=3,eta=0.5",
        "ucbvi:scale=0.3",
        "ucbvi:schedule=geometric:growth=1.3,first=10",
        "ucbvi:counter=blocks",
        "ucbvi:counter=square root",
        "ucbvi:counter=blt",
        "ucbvi:counter=fresh",
        "ucbvi:counter=smooth tree,stationary=false",
        "ucbpo:counter=binary tree",
    ),
    "linear": (
        "lsvi_ucb:statistic=counts",
        "lsvi_ucb:stationary=false",
        "lsvi_ucb:growth=1.3",
        "lsvi_ucb:switching=determinant",
        "lsvi_ucb:switching=rayleigh",
        "lsvi_ucb:statistic=features,gram_noise=triangle",
        "lsvi_ucb_plus_plus:weights=none",
        "lsvi_ucb_plus_plus:weights=variance,stationary=false",
        "lsvi_ucb_plus_plus:switching=rayleigh,schedule=fixed:size=100",
        "batched_lsvi_ucb:batches=5",
    ),
    "mixture": (
        "linopt_po:steps=3,eta=0.5",
        "linopt_vi:statistic=model",
        "linopt_vi:statistic=model,stationary=false",
        "linopt_vi:growth=1.3",
        "linopt_po:statistic=counts",
    ),
    "lq": ("certainty_equivalence:schedule=geometric:growth=1.3,first=10",),
    "continuous": (
        "functional_q:batch=10",
        "functional_q:protect=rewards",
        "fitted_functional_q:releases=3",
        "fitted_functional_q:protect=reward_function,radius=0.5",
        "private_policy_evaluation:rounds=2,epsilon=0.2",
        "output_perturbation:schedule=fixed:size=20",
        "output_perturbation:radius=0.5",
    ),
}
"""Under joint and local DP."""

OTHERS: tuple[Row, ...] = (
    row(
        "ucbpo:counter=blocks,schedule=fixed:size=100",
        WORLDS["tabular"],
        400,
        "joint, two disjoint episodes",
        ids=True,
    ),
    # Every user a release.
    row("ucbvi:schedule=every", WORLDS["tabular"], 40, "joint"),
    row("ucbvi:schedule=every,counter=blt", WORLDS["tabular"], 40, "joint"),
    row("lsvi_ucb:schedule=every,switching=determinant", WORLDS["linear"], 40, "joint"),
    row("lsvi_ucb:switching=determinant", WORLDS["linear"], 200, "none"),
    row("lsvi_ucb:switching=rayleigh", WORLDS["linear"], 200, "none"),
    row("deep_q:steps=4,hidden=8,target_every=2", "plane:horizon=6", 40, "joint"),
    # Other worlds.
    row("ucbvi", "grid:side=3,horizon=6", 2_000, "joint"),
    row("ucbvi", "deep_sea:depth=4,slip=true", 2_000, "joint"),
    row("ucbvi", "health_coach", 2_000, "joint"),
    row("ucbpo", "random_mdp:states=5,actions=3,horizon=5,seed=1", 2_000, "local"),
    row("ucbvi", "gym:FrozenLake-v1,horizon=20", 2_000, "joint"),
    row("lsvi_ucb", "two_state:seed=1", 2_000, "joint"),
    row("lsvi_ucb_plus_plus", "two_state:seed=1,known_rewards=true", 2_000, "joint"),
    row("lsvi_ucb", "simplex:stationary=false,horizon=5", 2_000, "joint"),
    row("linopt_vi", "hard_mixture:dimension=4,horizon=4", 2_000, "joint"),
    row("linopt_vi", "hard_mixture:dimension=4,horizon=4,per_step=true", 2_000, "joint"),
    row("linopt_po", "hard_mixture:dimension=4,horizon=4,known_rewards=false", 2_000, "joint"),
    row("linopt_vi", "keyboard:horizon=4", 2_000, "joint"),
    row("certainty_equivalence", "dosing", 1_000, "joint"),
    row("fitted_functional_q", "plane:horizon=10", 64, "joint"),
    row("fitted_functional_q", "trap:horizon=20", 100, "joint"),
    row("functional_q", "trap:horizon=20", 300, "joint"),
    row("fitted_functional_q", "cartpole:steps=30,horizon=10", 60, "joint"),
    row("fitted_functional_q:ends=true", "cartpole:steps=30,horizon=10", 60, "joint"),
    # Large blocks and late releases.
    *(
        row(agent, "riverswim:states=6,horizon=20", 100_000, model, slow=agent != "ucbvi")
        for agent in ("ucbvi", "ucbpo", "pucb", "ldpob", "ucbvi:stationary=false")
        for model in ("joint", "joint, large budget", "local", "local, large budget")
    ),
    row("ucbvi", "riverswim:states=6,horizon=20", 20_000, "none", slow=True),
    row("ucbvi:counter=binary tree", "riverswim:states=6,horizon=20", 100_000, "joint", slow=True),
    *(
        row(agent, world, 30_000, model, slow=True)
        for agent in ("lsvi_ucb", "lsvi_ucb_plus_plus", "adaptive_lsvi_ucb", "batched_lsvi_ucb")
        for world in ("two_state", "simplex")
        for model in ("joint", "joint, large budget")
    ),
    *(
        row(agent, world, 50_000, model, slow=True)
        for agent in ("linopt_vi", "linopt_po")
        for world in ("hard_mixture", "keyboard", "mixture_of_models")
        for model in ("joint, large budget", "local, large budget")
    ),
    *(
        row(agent, world, 60_000, model, slow=True)
        for agent in ("certainty_equivalence",)
        for world in ("dosing", "random_system")
        for model in ("joint", "local, large budget")
    ),
    *(
        row(agent, world, users, "joint, large budget", slow=True)
        for agent in ("fitted_functional_q", "functional_q")
        for world, users in (("line", 200), ("plane", 256), ("trap", 300))
    ),
)


def scheduled(agent: str, users: int) -> str:
    """An agent with four releases, where it has a choice: its own schedule may have one only."""
    kind = agent.partition(":")[0]
    chosen = "schedule=" in agent or "growth=" in agent
    if chosen or kind in ("batched_lsvi_ucb", *AGENTS["continuous"]):
        return agent
    return f"{agent}{',' if ':' in agent else ':'}schedule=fixed:size={users // 4}"


def _table() -> Iterable[Row]:
    for family, agents in AGENTS.items():
        world, users = WORLDS[family], USERS[family]
        for agent in agents:
            if ":" in agent and family != "continuous":
                agent = scheduled(agent, users)
            for model in MODELS:
                each = model == "none" and "schedule=" not in agent
                yield row(agent, world, min(users, PLAIN_USERS) if each else users, model)
        for agent in SAMPLED[family]:
            for model in OTHER_MODELS:
                ids = "episodes" in model
                yield row(scheduled(agent, users), world, users, model, ids=ids)
        for agent in OPTIONS[family]:
            for model in ("joint", "local"):
                yield row(scheduled(agent, users), world, users, model)
        if family != "continuous":
            for agent in SAMPLED[family]:
                model = "local, large budget"
                yield row(scheduled(agent, 100), world, 100, model, reports=True)


ROWS: tuple[Row, ...] = (*_table(), *OTHERS)
