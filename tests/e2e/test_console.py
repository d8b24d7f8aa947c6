"""The console in a real browser: signed in, on every page, wide and narrow, light and dark, by keyboard, against a real gateway."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.admin.sessions import COOKIE
from tidegate.domain.principal import Limits
from tidegate.testing import GatewayProcess, ThreadedUpstream
from tidegate.wiring.worker import KEYS_FILE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="the console's browser tests need the package playwright")
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"the browser tests need Debian's chromium as {CHROMIUM}"),
    pytest.mark.skipif(find_spec("chdb") is None, reason="the console's pages about past requests need the extra analytics"),
]

SHOTS = os.environ.get("TIDEGATE_SCREENSHOTS")
"""A directory to leave a picture of every page in, for people to look at."""
SIGNS = {
    "overview": "#live.good",
    "traffic": "#groups td",
    "requests": "#requests a",
    "request": "#timeline li",
    "limits": "#limits progress",
    "upstreams": "#upstreams td",
    "keys": "#keys td",
    "explain": "#ask",
    "query": "#question option",
    "playground": "#ask",
}
"""What is there once a page has its figures."""
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
UNREADABLE = """
() => {
  const parse = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, index) => sum + c * [0.2126, 0.7152, 0.0722][index], 0);
  const paper = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.disabled || node.closest("script, svg, option")) continue;
    const [one, other] = [light(parse(getComputedStyle(node).color)), light(paper(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.tagName} ${node.textContent.trim().slice(0, 40)}`);
  }
  return found;
}
"""
CURRENT_IN_VIEW = """
() => {
  const [all, one] = ["nav", "nav [aria-current]"].map((each) => document.querySelector(each).getBoundingClientRect());
  return one.left >= all.left - 1 && one.right <= all.right + 1;
}
"""
UNNAMED = """
() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button")]
  .filter((each) => each.checkVisibility() && !each.labels?.length && !each.textContent.trim() && !each.ariaLabel)
  .map((each) => each.outerHTML)
"""


class Site:
    """A gateway with two replicas and some traffic, and the keys to it."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self._sessions: dict[str, str] = {}
        store = KeyStore(gateway.state_directory / KEYS_FILE)
        now = wall_clock()
        with contextlib.closing(store):
            self.admin = store.create(name="root", tenant="ops", user="ops", now=now, admin=True).token.reveal()
            self.reader = store.create(name="reader", tenant="ops", user="ops", now=now, admin=True, read_only=True).token.reveal()
            self.key = store.create(name="shop", tenant="acme", user="shop", now=now, limits=Limits(tokens_per_minute=9000)).token
        (gateway.state_directory / "dev-key").write_text(self.key.reveal())
        gateway.wait_for_key(self.key)
        self.request_id = self.ask(stream=True)

    def ask(self, *, stream: bool = False) -> str:
        headers = {"authorization": f"Bearer {self.key.reveal()}", "x-business-context": json.dumps({"feature": "search", "order": "A-17"})}
        answer = httpx.post(f"{self.gateway.base_url}/chat/completions", headers=headers, json={**QUESTION, "stream": stream}, timeout=10.0)
        assert 200 == answer.status_code
        return answer.headers["x-request-id"]

    def session(self, key: str) -> str:
        """Sign in without a browser; give the cookie."""
        if key not in self._sessions:
            answer = httpx.post(f"{self.gateway.admin_url}/console/login", content=f"key={key}", timeout=10.0)
            self._sessions[key] = answer.cookies[COOKIE]
        return self._sessions[key]

    def figures(self, path: str) -> dict[str, object]:
        """Fetch what a page shows, as `curl` would."""
        answer = httpx.get(f"{self.gateway.admin_url}{path}", headers={"authorization": f"Bearer {self.admin}"}, timeout=10.0)
        assert 200 == answer.status_code, answer.text
        found: dict[str, object] = answer.json()
        return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ThreadedUpstream(models=("m",)) as one, ThreadedUpstream(models=("m",)) as two:
        upstream = {"dialect": "openai", "base_url": one.base_url, "models": ["m"], "replicas": [{"base_url": two.base_url}]}
        with GatewayProcess({"analytics": {"enabled": True}, "upstreams": {"pool": {**upstream, "health": {"enabled": False}}}}) as gateway:
            yield Site(gateway)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextlib.contextmanager
def visit(browser: Browser, site: Site, path: str, *, width: int = 1280, locale: str = "en-US", key: str | None = None) -> Iterator[Page]:
    """Give a page to somebody who is signed in; nothing may go wrong there that a browser complains of, but answers that say no."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light", locale=locale)
    context.set_default_timeout(8000)
    context.add_cookies(
        [{"name": COOKIE, "value": site.session(key or site.admin), "url": site.gateway.admin_url, "httpOnly": True, "sameSite": "Strict"}]
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" and "status of 4" not in message.text else None,
    )
    page.goto(f"{site.gateway.admin_url}/console/{path}")
    yield page
    context.close()
    assert [] == complaints


def test_a_person_signs_in_and_out(browser: Browser, site: Site) -> None:
    """With the key and Enter; a wrong one is told, and the cookie is out of scripts' reach."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.gateway.admin_url}/")
    page.fill("#key", "tg-nonsense")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]")
    page.fill("#key", site.admin)
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/overview")
    [cookie] = [each for each in context.cookies() if each["name"] == COOKIE]
    assert (True, "Strict") == (cookie["httpOnly"], cookie["sameSite"])
    page.click(".tools form button")
    page.wait_for_url("**/console/login")
    context.close()


@pytest.mark.parametrize(("width", "locale"), [(1280, "en-US"), (390, "zh-CN")])
def test_every_page_fits_and_can_be_read(browser: Browser, site: Site, width: int, locale: str) -> None:
    """No page scrolls sideways, every text has a contrast of 4.5 in light and dark, and no control is without a name."""
    with visit(browser, site, "overview", width=width, locale=locale) as page:
        for name, sign in SIGNS.items():
            page.goto(f"{site.gateway.admin_url}/console/{name if name != 'request' else 'requests/' + site.request_id}")
            page.wait_for_selector(sign, state="attached")
            assert 0 >= page.evaluate("document.documentElement.scrollWidth - innerWidth"), name
            assert [] == page.evaluate(UNNAMED), name
            assert page.evaluate(CURRENT_IN_VIEW), name
            assert locale[:2] == page.evaluate("document.documentElement.lang")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                assert [] == page.evaluate(UNREADABLE), (name, scheme)
                if SHOTS:
                    page.screenshot(path=Path(SHOTS) / f"{name}-{width}-{scheme}.png", full_page=True)


def test_the_overview_is_live(browser: Browser, site: Site) -> None:
    """A request made now shows within seconds, with no click; and the same figure is had without a browser."""
    with visit(browser, site, "overview") as page:
        page.wait_for_selector("#live.good")
        site.ask(stream=True)
        playwright.expect(page.locator("#tokens_out")).to_have_text(re.compile("[1-9]"))
        page.wait_for_selector("#outcomes tbody td:has-text('ok')")
        overview = site.figures("/admin/overview")
        assert overview["latest"]["minute"]["outcomes"]["ok"] >= 1  # type: ignore[index]


def test_a_request_is_followed_to_its_timeline(browser: Browser, site: Site) -> None:
    """From the list to its four levels: business, gateway, model server, machines."""
    request_id = site.ask(stream=True)
    with visit(browser, site, "requests") as page:
        page.wait_for_selector(f"#requests a[href*='{request_id}']")
        page.click(f"#requests a[href*='{request_id}']")
        page.wait_for_selector("#timeline li")
        assert "A-17" in page.inner_text("#business")
        assert "search" in page.inner_text("#business")
        assert re.search(r"Attempt 1 · pool/[01]", page.inner_text("#timeline"))
        assert "ok" in page.inner_text("#attempts")
        page.goto(f"{site.gateway.admin_url}/console/traffic")
        page.wait_for_selector("#groups td:has-text('acme')")


def test_a_replica_is_drained_and_enabled(browser: Browser, site: Site) -> None:
    """By one click each; readiness and metrics say so, and a reload does not undo it."""
    gateway = site.gateway
    with visit(browser, site, "upstreams") as page:
        page.click("button[aria-label='Drain pool/1']")
        page.wait_for_selector("button[aria-label='Enable pool/1']")
        assert ["pool/1"] == httpx.get(f"{gateway.admin_url}/readyz").json()["drained"]
        gateway.wait_for_metrics(lambda text: 'tidegate_upstream_replicas_drained{upstream="pool"} 1.0' in text, deadline_s=5.0)
        os.kill(gateway.pid, 1)
        gateway.wait_for_metrics(lambda text: 'reloads_total{result="succeeded"} 1.0' in text, deadline_s=10.0)
        states = {each["replica"]: each for each in site.figures("/admin/upstreams")["upstreams"][0]["replicas"]}  # type: ignore[index]
        assert (True, 0) == (states["pool/1"]["is_drained"], states["pool/1"]["available_in"])
        page.click("button[aria-label='Enable pool/1']")
        page.wait_for_selector("button[aria-label='Drain pool/1']")
        assert "drained" not in httpx.get(f"{gateway.admin_url}/readyz").json()


def test_an_outage_by_draining_asks_first_and_shows_as_errors(browser: Browser, site: Site) -> None:
    """What leaves an upstream without a replica is asked about; calls that find none are errors, as their page says."""
    gateway = site.gateway
    with visit(browser, site, "upstreams") as page:
        page.click("button[aria-label='Drain pool']")
        page.wait_for_selector("#sure[open]")
        page.keyboard.press("Escape")
        assert "drained" not in httpx.get(f"{gateway.admin_url}/readyz").json()
        page.click("button[aria-label='Drain pool']")
        page.click("#sure-yes")
        page.wait_for_selector("button[aria-label='Enable pool']")
        headers = {"authorization": f"Bearer {site.key.reveal()}"}
        answer = httpx.post(f"{gateway.base_url}/chat/completions", headers=headers, json=QUESTION, timeout=10.0)
        assert 503 == answer.status_code
        page.click("button[aria-label='Enable pool']")
        page.wait_for_selector("button[aria-label='Drain pool']")
        page.goto(f"{gateway.admin_url}/console/requests?outcome=rejected_no_replica&since=1h")
        page.wait_for_selector("#requests a")
        page.click("#requests a")
        page.wait_for_selector("#attempts td:has-text('reached no replica')")
        page.click("#back")
        page.wait_for_selector("#requests a")
        assert ("rejected_no_replica", "1h") == (page.input_value("#outcome"), page.input_value("#since"))
        traffic = site.figures("/admin/traffic?by=outcome&since=1h&color=")
        failed = {each["name"]: (each["errors"], each["refused"]) for each in traffic["groups"]}  # type: ignore[attr-defined]
        assert (1, 0) == failed["rejected_no_replica"]
        assert 1 == traffic["whole"]["errors"]  # type: ignore[index]
        page.goto(f"{gateway.admin_url}/console/requests/nothing")
        page.wait_for_selector("#notice.bad")
        assert not page.is_visible("#found")


def test_a_key_is_made_and_revoked_by_keyboard(browser: Browser, site: Site) -> None:
    """Its token is shown once and then nowhere; the revocation asks before it is done."""
    with visit(browser, site, "keys") as page:
        page.focus("#make summary")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("by keyboard")
        page.keyboard.press("Enter")
        page.wait_for_selector("#token[open]")
        token = page.inner_text("#token-text")
        assert token.startswith("tg-")
        page.keyboard.press("Escape")
        playwright.expect(page.locator("#token-text")).to_have_text("")
        page.wait_for_selector("#keys td:has-text('by keyboard')")
        assert token not in page.content()
        assert token not in page.url
        page.focus("button[aria-label='Revoke by keyboard']")
        page.keyboard.press("Enter")
        page.wait_for_selector("#sure[open]")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("#keys td:has-text('by keyboard')", state="detached")


def test_the_playground_streams_and_says_what_it_cost(browser: Browser, site: Site) -> None:
    """With the development key, which is not on the page."""
    with visit(browser, site, "playground") as page:
        page.fill("#prompt", "hello")
        page.click("#send")
        page.wait_for_selector("#took a")
        assert page.inner_text("#answer").strip()
        assert "USD" in page.inner_text("#took")
        assert site.key.reveal() not in page.content()
        page.fill("#api-key", "tg-nonsense")
        page.click("#send")
        page.wait_for_selector("#notice.bad")
        assert page.url.endswith("/console/playground")


def test_questions_limits_and_routes_are_answered(browser: Browser, site: Site) -> None:
    """A named question, SQL, SQL that is refused, how full a limit is, and where a request would go."""
    site.ask()
    with visit(browser, site, "query") as page:
        page.wait_for_selector("#question option", state="attached")
        page.select_option("#question", "cost")
        page.click("#named button")
        page.wait_for_selector("#answer td:has-text('acme')")
        page.fill("#sql", "SELECT count() AS how_many FROM requests")
        page.press("#sql", "Control+Enter")
        page.wait_for_selector("#answer th:has-text('how_many')")
        page.fill("#sql", "DROP TABLE requests")
        page.click("#own button")
        page.wait_for_selector("#notice.bad")
        page.goto(f"{site.gateway.admin_url}/console/limits")
        page.wait_for_selector("#limits td:has-text('key-tokens')")
        page.goto(f"{site.gateway.admin_url}/console/explain")
        page.fill("#tier", "it's")
        assert '"tier":"it' in (page.text_content("#curl") or "")
        page.fill("#tier", "default")
        page.click("#ask button")
        page.wait_for_selector("#report td:has-text('pool/0')")


def test_a_read_only_key_is_shown_no_way_to_change(browser: Browser, site: Site) -> None:
    """It sees the same, without the buttons; language and theme are its own."""
    with visit(browser, site, "upstreams", key=site.reader) as page:
        page.wait_for_selector("#upstreams td")
        assert 0 == page.locator("#upstreams button").count()
        page.click("#theme")
        page.click(".tools a")
        page.wait_for_selector("html[lang=zh]")
        assert "dark" == page.evaluate("document.documentElement.dataset.theme")
