"""``tacit run`` and ``tacit plan``: numbers by hand, words, files, noise."""

import json

import tacit
from tacit import Guarantee, published
from tacit.simulation.tables import load_results
from tests.cli.calls import BUDGET, call, content, entry, one_line, run


def test_one_object_with_hand_computed_values():
    made = entry(run(*BUDGET, "--seeds", 3, "--json"))
    # Seed k serves (k + 1) blocks of 100 users at half of the value, and all others well.
    expected = [
        {
            "seed": seed,
            "regret": 0.5 * 100 * (seed + 1),
            "users_to_90": 100 * (seed + 1),
            "greedy_users_to_90": 100 * seed,
            "served_value": 1.0 - 0.5 * 100 * (seed + 1) / 10_000,
            "final_value": 1.0,
            "score": 1.0,
            "greedy_value": 1.0,
            "greedy_score": 1.0,
        }
        for seed in range(3)
    ]
    assert [{name: one[name] for name in expected[0]} for one in made["runs"]] == expected
    assert (made["world"], made["agent"]) == ("two_coins:best=1.0", "scripted")
    assert (made["optimal_value"], made["baseline_value"], made["reference_value"]) == (1, 0.5, 0)
    assert (made["users_to_90_median"], made["greedy_users_to_90_median"]) == (200, 100)
    assert made["score_median"] == 1.0
    assert made["seconds"] > 0
    guarantee = Guarantee.from_dict(made["guarantee"])
    assert (guarantee.model, guarantee.epsilon, guarantee.delta) == ("joint", 1.0, 1e-6)
    assert guarantee.simulation_only
    assert "simulation only" in guarantee.short


def test_what_is_never_reached_counts_as_infinity():
    made = entry(run(*BUDGET, "--seeds", 4, "--json", agent="scripted:never=3"))
    assert [r["users_to_90"] for r in made["runs"]] == [100, 200, 300, None]
    assert (made["users_to_90_median"], made["greedy_users_to_90_median"]) == (250, 150)
    made = entry(run(*BUDGET, "--seeds", 4, "--json", agent="scripted:never=2"))
    assert (made["users_to_90_median"], made["score_median"]) == (None, 0.5)


def test_seeds_count_from_the_first_and_an_agents_own_budget_wins():
    made = entry(run(*BUDGET, "--seed", 5, "--seeds", 2, "--json"))
    assert [r["seed"] for r in made["runs"]] == [5, 6]
    assert made["runs"][1] == entry(run(*BUDGET, "--seed", 6, "--json"))["runs"][0]
    made = entry(run(*BUDGET, "--json", agent="scripted:epsilon=3"))
    assert (made["guarantee"]["epsilon"], made["guarantee"]["delta"]) == (3.0, 1e-6)
    assert entry(run("--json", agent="scripted:privacy=none"))["guarantee"] is None


def test_people_get_a_table_the_guarantee_and_a_sentence():
    outcome = run(*BUDGET, "--seeds", 2)
    assert (outcome.exit_code, outcome.stderr) == (0, "")
    words = " ".join(outcome.stdout.split())
    assert (
        "scripted on two_coins:best=1.0: 10,000 users got 0.9925 each, the last of them 1" in words
    )
    assert "possible 1, without learning 0.5" in words
    assert "median 150 1 0.0075 50 1" in words
    assert "Guarantee: Simulation only: the noise seed is known" in words
    assert "After 150 users, those who come get 90 % of what is possible, for good." in words
    words = " ".join(run("--privacy", "none", users="150").stdout.split())
    assert "Not private: nothing is guaranteed" in words
    assert "the run is too short" in words
    words = " ".join(run("--privacy", "none", agent="scripted:never=0").stdout.split())
    assert "10,000 users were not enough" in words


def test_the_headline_is_what_served_users_got():
    """A greedy policy knows more than an optimist, who serves; batch agents serve no one."""
    small = {"world": "riverswim:states=4,horizon=8", "users": "2e4", "agent": "ucbvi:scale=20"}
    made = entry(run(*BUDGET, "--json", **small))
    (got,) = made["runs"]
    assert got["final_value"] < got["greedy_value"]
    words = " ".join(run(*BUDGET, **small).stdout.split())
    assert words.startswith(
        "ucbvi:scale=20 on riverswim:states=4,horizon=8: 20,000 users got "
        f"{got['served_value']:.4g} each, the last of them {got['final_value']:.4g} "
        f"(score {got['score']:.3f}); possible {made['optimal_value']:.4g}, without learning"
    )
    batch = run(*BUDGET, agent="fitted_functional_q", world="line:horizon=8", users=60)
    assert "It is a batch agent" in " ".join(batch.stdout.split())


def test_results_are_saved_and_drawn(tmp_path):
    picture, file = tmp_path / "a.png", tmp_path / "a.json"
    outcome = run(*BUDGET, "--seeds", 2, "--plot", picture, "--save", file)
    assert outcome.exit_code == 0
    assert str(picture) in outcome.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [r.seed for r in load_results(file)["scripted"]] == [0, 1]
    quiet = run(*BUDGET, "--plot", picture, "--json")
    assert json.loads(quiet.stdout)["users"] == 10_000


def test_a_run_writes_the_policy_that_it_ends_with(tmp_path):
    file = tmp_path / "p.npz"
    given = ("--agent", "ucbvi", "--world", "riverswim:states=3,horizon=5", "--privacy", "none")
    made = call("run", *given, "--users", "300", "--seed", "4", "--policy-out", file)
    assert made.exit_code == 0
    policy = published.load(file)
    world = tacit.world("riverswim:states=3,horizon=5")
    alone = tacit.run("ucbvi", world, 4, users=300, privacy=tacit.NonPrivate(), progress=False)
    assert world.value(alone.policy) == alone.greedy_value > 0.9 * world.optimal_value
    told = [policy.act(0, s) for s in range(3)]
    assert told == alone.policy.actions[0].tolist()  # in the world's own labels
    two = call("run", *given, "--seeds", "2", "--policy-out", file)
    assert "of one run" in one_line(two)


def compare(*arguments):
    fixed = ("--world", "two_coins", "--users", "1e4", "--workers", 1, "--seeds", 2)
    return call("run", *fixed, *arguments)


def test_agents_times_budgets(tmp_path):
    picture, file = tmp_path / "a.png", tmp_path / "a.json"
    made = content(
        compare(
            *("--agent", "scripted", "--agent", "scripted:never=1", "--agent"),
            *("scripted:privacy=none", "--agent", "scripted:privacy=local,epsilon=4"),
            *("--epsilon", "0.1", "--epsilon", "1", "--delta", "1e-6"),
            *("--plot", picture, "--save", file, "--json"),
        )
    )
    seen = {
        e["label"]: (e["privacy"]["model"], e["privacy"]["epsilon"], e["users_to_90_median"])
        for e in made["entries"]
    }
    assert seen == {
        "scripted, epsilon 0.1": ("joint", 0.1, 150),
        "scripted, epsilon 1": ("joint", 1.0, 150),
        "scripted:never=1, epsilon 0.1": ("joint", 0.1, None),
        "scripted:never=1, epsilon 1": ("joint", 1.0, None),
        "scripted:privacy=none": ("none", None, 150),
        "scripted:privacy=local,epsilon=4": ("local", 4.0, 150),
    }
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {label: len(runs) for label, runs in load_results(file).items()} == dict.fromkeys(
        seen, 2
    )


def planned(*arguments, agent="scripted"):
    return call("plan", "--agent", agent, *arguments)


def test_a_plan_tries_more_users_until_it_is_enough():
    made = content(planned("--world", "two_coins", *BUDGET, "--seeds", 3, "--json"))
    assert (made["users"], made["users_to_90_median"], made["settled"]) == (10_000, 200, True)
    assert (made["users_to_90_range"], made["price"]) == ([100, 300], 1.0)
    assert made["noise_std"] is None  # it does not say what it asks for
    # Seeds 20 to 22 take 2,100 to 2,300 users, so 10,000 are too few to be sure.
    late = ("--world", "two_coins", *BUDGET, "--seed", 20, "--seeds", 3, "--json")
    assert content(planned(*late))["users"] == 100_000
    short = content(planned(*late, "--most", "1e4"))
    assert (short["users"], short["settled"]) == (10_000, False)
    given = content(planned(*late, "--users", "2000"))
    assert (given["users"], given["users_to_90_median"]) == (2000, None)


def test_plans_for_people_say_what_is_uncertain():
    words = " ".join(planned("--world", "two_coins", *BUDGET).stdout.split())
    assert "users to 90 %, median of 5 runs 300" in words
    assert "It chose: as scripted." in words
    words = " ".join(planned("--world", "two_coins", *BUDGET, "--users", 1000).stdout.split())
    assert "the number is uncertain" in words
    never = planned("--world", "two_coins", *BUDGET, "--users", 1000, agent="scripted:never=0")
    assert "1,000 users are not enough" in " ".join(never.stdout.split())


def test_a_plan_chooses_its_agent_and_says_how_few_could_suffice():
    given = ("--world", "riverswim:states=3,horizon=6", "--epsilon", 10, "--delta", "1e-3")
    more = ("--seeds", 1, "--users", 5000)
    made = content(call("plan", *given, *more, "--json"))
    assert made["agent"] == "concurrent_psrl"
    assert made["chosen"].startswith("finite world, joint DP: ")
    assert 1 <= made["least_users"] < made["users_to_90_median"]
    # Without privacy it is another one.
    assert made["non_private_users_to_90_median"] < made["users_to_90_median"]
    words = " ".join(call("plan", *given, *more).stdout.split())
    assert f"that any private method needs {made['least_users']}" in words
