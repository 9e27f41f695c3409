"""Pictures of the pages of a service, for the documentation.

``python -m tests.service.pictures`` plays an app of 100,000 invented people, opens its pages in
Chromium, light and dark and as wide as a phone, and writes ``docs/img/service-*.png``.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from sqlalchemy import update

from tacit.cli.serve import tools
from tacit.data.episodes import Episodes
from tacit.service.app_file import read_app
from tacit.store.schema import versions
from tests.service.running import running
from tests.service.test_pages import chromium
from tests.service.world import reads

IMAGES = Path(__file__).parents[2] / "docs" / "img"
BLOCK, BLOCKS, DAY = 5000, 20, 86400.0
APP = f"""
[world]
states = ["new", "reading", "idle", "gone"]
actions = ["wait", "suggest", "ask"]
horizon = 5
[agent]
users = {BLOCK * (BLOCKS + 5)}
schedule = "fixed:size={BLOCK}"
[privacy]
epsilon = 1.0
delta = 1e-8
[about]
app = "Reading nudges"
today = "2.2"
"""
PAGES = [("overview", "/"), ("policies", "/policies"), ("officer", "/officer")]
PAGES += [("compare", "/policies/compare?first=0&second=20")]


def night(policy, first, rng):
    """A block of invented people: a suggestion helps who is idle, and annoys who reads."""
    states, users = np.zeros((BLOCK, 6), int), [*range(first, first + BLOCK)]
    actions, rewards = np.zeros((BLOCK, 5), int), np.zeros((BLOCK, 5), int)
    good = np.array([[2, 1, 1, 5], [4, 2, 8, 5], [3, 5, 2, 5]])[:, [0, 1, 2, 3]] / 10
    for step in range(5):
        state = states[:, step]
        action = policy.actions[step, state]
        happy = rng.random(BLOCK) < good[action, state] + 0.1
        actions[:, step], rewards[:, step] = action, happy
        states[:, step + 1] = np.where(happy, 1, rng.choice([1, 2, 3], BLOCK, p=[0.3, 0.5, 0.2]))
    return Episodes(states, actions, rewards, np.full(BLOCK, policy.version), users)


def learnt(folder):
    """An app that has learnt for a fortnight."""
    (folder / "app.toml").write_text(APP)
    app, rng = read_app(str(folder / "app.toml"), logs=False), np.random.default_rng(0)
    agent = app.agent()
    for block in range(BLOCKS):
        data = night(agent.policy, block * BLOCK, rng)
        agent.learn(data, events=[f"{block}-{user}" for user in range(BLOCK)])
    with agent.store.write() as db:
        ago = BLOCKS - versions.c.version  # more come every day
        db.execute(update(versions).values(at=versions.c.at - ago * (ago + 20) * 0.018 * DAY))
    agent.store.close()
    return app


def lose(device):
    """A few people come today: some send twice, and some send nothing."""
    for user in range(40):
        reads(device)
        sent = {"user": f"new {user}", "ticket": device._ticket, "states": [0, 1, 1, 1, 1, 1]}
        sent |= {"actions": [1, 2, 2, 2, 2], "rewards": [1, 0, 1, 1, 1]}
        for event in range((1, 1, 1, 2, 0)[user % 5]):
            device.post("/v1/episodes", sent | {"event": f"{user} {event}"})


def main():
    """Writes all pictures."""
    with tempfile.TemporaryDirectory() as name, running(learnt(Path(name)), tools()) as run:
        browser = chromium("hide-scrollbars")
        lose(run.client(token=run.tokens["device"]))
        browser.get(f"{run.address}/login")
        browser.find_element(By.ID, "token").send_keys(run.tokens["officer"], Keys.ENTER)
        for look, width in (("light", 1200), ("dark", 1200), ("phone", 390)):
            media = {"name": "prefers-color-scheme", "value": "dark" if look == "dark" else "light"}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [media]})
            for page, path in PAGES if look == "light" else PAGES[:2]:
                browser.set_window_size(width, 1000)
                browser.get(run.address + path)
                height = browser.find_element(By.TAG_NAME, "html").size["height"]
                browser.set_window_size(width, 150 + int(height))
                file = IMAGES / f"service-{page}-{look}.png"
                browser.save_screenshot(os.fspath(file))
                print(file)  # noqa: T201
        browser.quit()


if __name__ == "__main__":
    main()
