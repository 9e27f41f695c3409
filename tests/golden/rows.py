"""What is recorded: agents, each in a world under a model; and the papers' algorithms."""

from dataclasses import dataclass
from functools import partial

import tacit
from research.worlds import build
from tacit import papers

MODELS = {
    "none": tacit.NonPrivate(),
    "joint": tacit.JointDP(2.0, 1e-6),
    "pure": tacit.JointDP(2.0, 0.0),
    "local": tacit.LocalDP(8.0, 1e-6),
    "pure local": tacit.LocalDP(8.0, 0.0),
    "bits": tacit.LocalDP(8.0, 0.0, mechanism="randomised response"),
    "distributed": tacit.DistributedDP(2.0, 1e-6),
    "zero-out": tacit.JointDP(2.0, 1e-6, relation=tacit.Relation.ZERO_OUT),
    # Users have ids, and come twice.
    "ids": tacit.JointDP(4.0, 1e-6, episodes_per_user=2),
    "local ids": tacit.LocalDP(16.0, 1e-6, episodes_per_user=2),
    # Devices report.
    "reports": tacit.LocalDP(8.0, 1e-6),
}
"""By name."""

RIVER, SMALL = "riverswim:states=4,horizon=6", "riverswim:states=3,horizon=3"
SIMPLEX = "simplex:dimension=3,states=8,actions=3,horizon=4"
MIXTURE = "mixture_of_models:dimension=3,states=4,actions=4,horizon=4,seed=700"
KEYS = "keyboard:horizon=3"
SYSTEM = "random_system:n=2,d=1,horizon=5,seed=500"
LINE = "line:horizon=8"

_TABLE = (
    ("ucbvi", RIVER, 20_000, "none, joint, pure, zero-out, ids"),
    ("ucbvi", RIVER, 100_000, "local, pure local"),
    ("ucbvi", RIVER, 1_000, "reports"),
    ("ucbvi:stationary=false", RIVER, 20_000, "joint, bits"),
    ("ucbvi", "grid:side=3,horizon=6", 20_000, "joint"),
    ("ucbvi", "riverswim:states=6,horizon=20", 100_000, "joint"),
    ("ucbpo", RIVER, 20_000, "none, joint"),
    ("ucbpo", RIVER, 100_000, "local"),
    ("ucbpo", "random_mdp:states=5,actions=3,horizon=5,seed=1", 2_000, "local ids"),
    ("concurrent_psrl", RIVER, 5_000, "none, joint, pure, distributed, ids"),
    ("concurrent_psrl:running=0", RIVER, 5_000, "joint"),
    ("concurrent_psrl:stationary=false", RIVER, 5_000, "joint"),
    ("policy_improvement", RIVER, 20_000, "none, joint"),
    ("pessimistic_vi", RIVER, 20_000, "none, joint"),
    ("pessimistic_improvement", RIVER, 20_000, "joint"),
    ("pessimistic_improvement:behaviour=unknown", RIVER, 20_000, "none, joint"),
    ("lsvi_ucb", SIMPLEX, 4_000, "none, joint, pure, local, pure local, ids"),
    ("lsvi_ucb", SIMPLEX, 1_000, "reports"),
    ("lsvi_ucb:statistic=features", SIMPLEX, 4_000, "joint"),
    ("lsvi_ucb:statistic=counts,stationary=false", SIMPLEX, 4_000, "joint"),
    ("lsvi_ucb", "simplex:stationary=false,horizon=5", 2_000, "joint"),
    ("lsvi_ucb_plus_plus", SIMPLEX, 4_000, "none, joint, local"),
    ("linear_posterior", SIMPLEX, 1_000, "none, joint, distributed"),
    ("linear_posterior:stationary=false", SIMPLEX, 1_000, "joint"),
    ("pessimistic_lsvi", SIMPLEX, 4_000, "none, joint"),
    ("linopt_vi", MIXTURE, 4_000, "none, joint, pure, local, pure local, ids"),
    ("linopt_vi", MIXTURE, 1_000, "reports"),
    ("linopt_vi:statistic=model", MIXTURE, 4_000, "joint"),
    ("linopt_vi", KEYS, 2_000, "joint"),
    ("linopt_po", MIXTURE, 4_000, "none, joint, local"),
    ("linopt_po:statistic=counts,steps=3,eta=0.5", MIXTURE, 4_000, "joint"),
    *(
        (agent, world, users, "none, joint, local")
        for agent, world, users in (
            ("linopt_sampled", "currents:rows=5,columns=6,dimension=3,horizon=4,samples=64", 1_000),
            ("fitted_functional_q:serve=all", LINE, 200),
        )
    ),
    ("certainty_equivalence", SYSTEM, 1_000, "none, joint, local, ids, reports"),
    ("certainty_equivalence", "dosing", 1_000, "joint"),
    ("fitted_functional_q", LINE, 200, "none, joint"),
    ("fitted_functional_q", "plane:horizon=10", 64, "joint"),
    ("fitted_functional_q:ends=true", "cartpole:steps=30,horizon=10", 60, "joint"),
    ("fitted_functional_q:serve=most", LINE, 200, "none, joint"),
    ("model_posterior", LINE, 500, "none"),
    ("model_posterior", LINE, 2_000, "joint"),
)


@dataclass(frozen=True)
class Row:
    """An agent with its options, a world with its own, the users, and a name of a model."""

    agent: str
    world: str
    users: int
    model: str

    @property
    def name(self):
        """Unlike that of any other row."""
        return f"{self.agent} | {self.world} | {self.users} | {self.model}"


ROWS = [
    Row(agent, world, users, model)
    for agent, world, users, models in _TABLE
    for model in models.split(", ")
]


def _papers():
    # At budgets and with constants with which something is learnt, but where every bit decides.
    large, pure = {"epsilon": 1e6, "delta": 1e-6}, {"epsilon": 1e4, "delta": 0.0}
    small = {"epsilon": 5.0, "delta": 1e-6}
    gentle = (1e-6, 5e-4, 5e-4, 1e-7, 2e-8, 2e-8, 2.0, 60, True, False)
    lines = (
        ("chowdhury_tabular_2021", "ucb_vi", SMALL, {"episodes": 20_000, **pure}),
        ("chowdhury_tabular_2021", "ucb_po", SMALL, {"episodes": 20_000, **pure}),
        ("chowdhury_lq_2021", "private_ofu_rl", SYSTEM, {"episodes": 30, **small}),
        ("sahu_linear_2025", "dp_lsvi_ucb_plus_plus", SIMPLEX, {"episodes": 2_000, **large}),
        ("wang_functional_2019", "functional_q", LINE, small),
        ("zhou_mixture_2022", "lin_opt_vi", KEYS, {"episodes": 2_000, **large}),
        ("zhou_mixture_2022", "lin_opt_po", KEYS, {"episodes": 2_000, **large}),
    )
    for paper, algorithm, world, options in lines:
        for printed in (True, False):
            given = options | {"printed": printed}
            given |= {"constants": gentle} if paper.startswith("sahu") else {}
            name = f"{algorithm}, {'printed' if printed else 'corrected'}"
            yield name, partial(_run_paper, paper, algorithm, world, given)


def _run_paper(paper, algorithm, world, given):
    module = getattr(papers, paper)
    if "constants" in given:
        given = given | {"constants": module.LSVIConstants(*given["constants"])}
    return getattr(module, algorithm)(build(world), **given)


PAPERS = dict(_papers())
"""Runs of the papers' algorithms, by name."""
