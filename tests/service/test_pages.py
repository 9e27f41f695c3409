"""The pages, in a real browser: what a curator and an officer do, on a phone and by keyboard."""

import shutil

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from tacit.cli.serve import tools
from tests.service.running import running
from tests.service.world import come, make_app

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs Chromium and its driver: apt-get install -y chromium chromium-driver",
)
# Every element that a person gives something to has a name that a screen reader says.
UNNAMED = """
return [...document.querySelectorAll('input:not([type=hidden]), select, button, a, [role=region]')]
  .filter(e => !(e.labels && e.labels.length) && !e.textContent.trim() && !e.ariaLabel)
  .map(e => e.outerHTML)
"""
TILES = (By.CSS_SELECTOR, ".answers div")
WIDTH = "return [document.documentElement.scrollWidth, window.innerWidth]"


def chromium(*more):
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", *more):
        options.add_argument(f"--{argument}")
    return webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))


@pytest.fixture
def browser():
    made = chromium()
    yield made
    made.quit()


def press(browser, words):
    """Presses a button, and waits for the page after it."""
    old = browser.find_element(By.TAG_NAME, "html")
    browser.find_element(By.XPATH, f"//button[normalize-space()='{words}']").click()
    WebDriverWait(browser, 60, 0.05).until(expected_conditions.staleness_of(old))


def shows(browser, words, again=False):
    """Whether the page says this, once it is there; on a busy machine that takes a while."""

    def there(seen):
        if again:
            seen.refresh()
        return words in seen.find_element(By.TAG_NAME, "body").text

    ignored = (NoSuchElementException, StaleElementReferenceException)
    return bool(WebDriverWait(browser, 60, 0.1, ignored).until(there))


def log_in(browser, run, role):
    browser.get(f"{run.address}/login")
    browser.find_element(By.ID, "token").send_keys(run.tokens[role], Keys.ENTER)
    WebDriverWait(browser, 30).until(lambda b: b.title.startswith("Overview"))


def look(browser, name):
    """What holds on every page, at the width of a desk and of a phone."""
    for width in (1100, 390):
        browser.set_window_size(width, 900)
        wide, window = browser.execute_script(WIDTH)
        assert wide <= window, f"{name} is {wide} wide on {window}"
    assert browser.execute_script(UNNAMED) == []
    assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1
    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"


def test_a_curator_and_an_officer(tmp_path, browser):
    app = make_app(tmp_path, size=15)
    with running(app, tools()) as run:
        browser.get(run.address)
        assert browser.current_url.endswith("/login")  # nobody looks without a token
        look(browser, "login")
        log_in(browser, run, "curator")
        # By keyboard: the first stop is the way past the links.
        browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        assert browser.switch_to.active_element.text == "To the content"

        come(run.client(), 50)
        version = run.wait(lambda s: s["served"] >= 45)["version"]
        assert version >= 2

        browser.get(run.address)
        assert shows(browser, "all that is published would be about as likely")
        assert "-joint differential privacy for one user" in browser.page_source
        for words in ("No loss", "Is it learning?", "of 15 places", "that is intended", "run"):
            assert shows(browser, words)
        told = [tile.text.split("\n") for tile in browser.find_elements(*TILES)]
        assert [told[3][:2], told[5][1]] == [["What is lost?", "✓ Nothing"], "45"]
        text = browser.find_element(By.TAG_NAME, "body").text
        assert "Nothing is wrong now" in text or "earned less than" in text  # by chance
        assert "learnt from 45 in blocks that are full" in text
        assert browser.find_elements(By.CSS_SELECTOR, "svg.curve circle")
        look(browser, "overview")

        browser.get(f"{run.address}/policies")
        assert len(browser.find_elements(By.CSS_SELECTOR, ".heat td:not(.number)")) == 9
        look(browser, "policies")
        press(browser, "Pin 0")
        assert shows(browser, "is pinned: releases go on", again=True)
        press(browser, "Stop serving")
        assert shows(browser, "The service is stopped")
        assert run.client().request("GET", "/v1/policy")[0] == 503
        press(browser, "Serve again")
        press(browser, "Unpin")
        run.wait(lambda s: not s["pinned"] and not s["stopped"])
        browser.get(f"{run.address}/policies/compare?first=0&second={version}")
        assert shows(browser, "They differ in")
        look(browser, "compare")

        browser.get(f"{run.address}/people")
        browser.find_element(By.ID, "user").send_keys("nobody")
        press(browser, "Forget")
        assert shows(browser, "Erased: 0.")
        look(browser, "people")
        browser.get(f"{run.address}/officer")
        assert shows(browser, "this is for officer")

        browser.get(f"{run.address}/policies")
        press(browser, "Log out")
        log_in(browser, run, "officer")
        browser.get(f"{run.address}/officer")
        assert shows(browser, "was checked just now")
        assert shows(browser, "They agree.")
        look(browser, "officer")
        browser.get(f"{run.address}/policies")
        assert shows(browser, "Published versions")
        assert not browser.find_elements(By.CSS_SELECTOR, "main form[method=post]")
        browser.get(f"{run.address}/officer/report")
        assert shows(browser, "Privacy report")
