"""A trial in a service: what an app's file says of it, and where its answer is told."""

from pathlib import Path

import pytest

from tacit.cli.serve import tools
from tacit.privacy.errors import InvalidArgument
from tacit.service.client import Client, Refused
from tacit.tabular.policy import Policy
from tests.service.running import running
from tests.service.world import come, make_app, reads

TRIAL = """
[trial]
baseline = {new = "wait", idle = "ask", busy = "wait"}
holdout = 0.25
returns = [0, 3]
looks = [0.5, 1.0]
probabilities = [0.2, 0.8]
rule = false
"""


def test_the_answer_is_told_and_a_policy_goes_live(tmp_path: Path) -> None:
    app = make_app(tmp_path, users=60, size=10, serve=TRIAL)
    with running(app, tools()) as run:
        device, curator = run.client(), run.client("curator")
        page = curator.request("GET", "/")[2].decode()
        assert "The first look is after 30 people." in page
        with pytest.raises(Refused, match="no policy was tried"):
            curator.post("/v1/commands", {"what": "live"})
        assert "Let what was tried go live" in curator.request("GET", "/policies")[2].decode()
        rows = [reads(device).components[m] for m in range(2)]
        assert rows[0].probabilities[0].tolist() == [[1, 0], [0, 1], [1, 0]]
        assert {0.2, 0.8} == {*rows[1].probabilities.ravel().round(9).tolist()}
        for served in (10, 20, 30):
            come(device, 10)
            told = run.closes(lambda s, n=served: s["served"] == n)["trial"]
            assert (told["gain"] is None) == (served < 30)
        assert told["low"] < told["gain"] < told["high"]
        assert (told["users"], told["next_look"], told["live"]) == (30, 60, -1)
        done = curator.post("/v1/commands", {"what": "live"})
        assert done["version"] == run.wait(lambda s: s["trial"]["live"] >= 0)["version"]
        page = curator.request("GET", "/")[2].decode()
        assert "people whom this app's policies served earned" in page
        assert "went live: it serves all but those who are held out" in page
        curve = curator.get("/v1/state")["monitoring"]["return"]
        assert len(curve) == 3
        report = run.client("officer").request("GET", "/officer/report")[2].decode()
        assert "Users whom its policies served earned" in report
        careful = Client(
            run.address, run.tokens["device"], tries=1, fallback=Policy.uniform(3, 3, 2)
        )
        assert careful.policy().version == done["version"]
        curator.post("/v1/commands", {"what": "stop"})
        assert careful.policy() is careful._fallback
        assert careful.send("ann", ["new"] * 4, ["ask"] * 3, [0] * 3)["status"] == "unasked"
        careful.close()
    again = make_app(tmp_path, users=60, size=10, serve=TRIAL).agent()
    assert again.trial().live >= 0
    again.store.close()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('baseline = {new = "wait"}', "must name an action of the world for each"),
        ('baseline = "nowhere.npz"', "baseline: "),
        ("looks = [2.0]", "looks must increase"),
        ("share = 7", "share is 7"),
        ("arms = 3", "has no key 'arms'"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"\[trial\].*{why}"):
        make_app(tmp_path, serve=f"[trial]\n{line}")
