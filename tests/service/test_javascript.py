"""Devices in JavaScript: under Node against a running service, and in a browser."""

import functools
import http.server
import threading

import numpy as np
import pytest
from scipy.stats import chi2

from tests.node import JS, node
from tests.service.people import signed
from tests.service.running import running
from tests.service.test_pages import CHROMIUM, DRIVER, browser
from tests.service.world import make_app
from tests.test_client_noise import Given, drawn, some_bytes

__all__ = ["browser"]  # a fixture
LOCAL = 'model = "local"'


@pytest.mark.parametrize(
    ("agent", "privacy", "way"),
    [
        ("ucbvi", "", "whole"),
        ("ucbvi", LOCAL, "whole"),
        ("concurrent_psrl", "", "whole"),
        ("ucbvi", "", "late"),
        ("concurrent_psrl", "", "late"),
    ],
)
def test_a_device_under_node_is_counted_once(tmp_path, agent, privacy, way):
    with running(make_app(tmp_path, agent=agent, size=3, privacy=privacy)) as run:
        receipts = node("check_client.mjs", run.address, ",".join(map(signed, "abc")), way)
        state = run.wait(lambda state: state["served"] >= 3)
    # Each was sent twice under one event id, and accepted once.
    assert all(first["accepted"] for first, _ in receipts)
    assert state["served"] == 3
    assert state["version"] == 1


@pytest.fixture(scope="module")
def files():
    """The modules, from a server of this machine."""
    handler = functools.partial(Quiet, directory=str(JS))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


IN_PAGE = """
const done = arguments[arguments.length - 1];
import("/noise.js").then(({ normal }) => {
  const given = Uint8Array.from(arguments[0]);
  let used = 0;
  const source = (n) => given.subarray(used, (used += n));
  done([normal(7.5, 50, source).map(Number), normal(2.5, 4000).map(Number)]);
}).catch((error) => done(String(error)));
"""


@pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs Chromium and its driver: apt-get install -y chromium chromium-driver",
)
def test_noise_in_a_browser_is_that_of_python_and_has_its_law(browser, files):
    held = some_bytes("browser", 4000)
    browser.set_script_timeout(600)
    browser.get(f"{files}/README.md")
    same, own = browser.execute_async_script(IN_PAGE, [*held])
    assert same == drawn(True, 7.5, 50, Given(held))
    # From the browser's own generator: a chi-square test that fails once in a million times.
    from scipy.special import ndtr

    most, count = 6, len(own)
    below = ndtr((np.arange(-most, most) + 0.5) / 2.5)
    expected = count * np.diff(np.concatenate([[0.0], below, [1.0]]))
    found = np.bincount(np.clip(own, -most, most) + most, minlength=2 * most + 1)
    assert ((found - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 2 * most)
