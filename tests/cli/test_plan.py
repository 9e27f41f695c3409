"""``tacit plan``: how many users are enough."""

from __future__ import annotations

from tacit import JointDP, registry
from tacit.simulation.plan import plan
from tests.cli.calls import BUDGET, call, content, one_line


def planned(*arguments, agent="scripted"):
    return call("plan", "--agent", agent, *arguments)


def test_a_plan_tries_more_users_until_it_is_enough():
    made = content(planned("--world", "two_coins", *BUDGET, "--seeds", 3, "--json"))
    assert made["users"] == 10_000
    assert made["users_to_90_median"] == 200
    assert made["users_to_90_range"] == [100, 300]
    assert made["non_private_users_to_90_median"] == 200
    assert made["price"] == 1.0
    assert made["noise_std"] is None  # it does not say what it asks for
    assert made["why"] == "as scripted"
    assert made["settled"] is True
    assert made["privacy"] == {"model": "joint", "epsilon": 1.0, "delta": 1e-6}
    # Seeds 20 to 22 take 2,100 to 2,300 users, so 10,000 are too few to be sure.
    late = ("--world", "two_coins", *BUDGET, "--seed", 20, "--seeds", 3, "--json")
    assert content(planned(*late))["users"] == 100_000
    short = content(planned(*late, "--most", "1e4"))
    assert (short["users"], short["settled"]) == (10_000, False)
    given = content(planned(*late, "--users", "2000"))
    assert (given["users"], given["users_to_90_median"]) == (2000, None)


def test_more_budget_needs_fewer_users():
    needed = [
        plan(
            registry.build_world("riverswim:states=3,horizon=4"),
            registry.choose_agent("ucbvi"),
            JointDP(epsilon, 1e-6),
            10**6,
            seeds=[0],
            progress=False,
        )
        for epsilon in (0.1, 10.0)
    ]
    assert needed[0].noise_std > 10 * needed[1].noise_std > 0.0
    assert needed[0].users_to_90 > needed[1].users_to_90
    assert needed[0].price > needed[1].price


def test_plans_for_people_say_what_is_uncertain():
    words = " ".join(planned("--world", "two_coins", *BUDGET).stdout.split())
    assert "users to 90 %, median of 5 runs 300" in words
    assert "It chose: as scripted." in words
    words = " ".join(planned("--world", "two_coins", *BUDGET, "--users", 1000).stdout.split())
    assert "the number is uncertain" in words
    never = planned("--world", "two_coins", *BUDGET, "--users", 1000, agent="scripted:never=0")
    assert "1,000 users are not enough" in " ".join(never.stdout.split())


def test_plans_refuse_what_makes_no_sense():
    assert "Missing option '--world'" in one_line(planned(*BUDGET))
    assert "no known optimum" in one_line(planned("--world", "unknown", *BUDGET))


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
