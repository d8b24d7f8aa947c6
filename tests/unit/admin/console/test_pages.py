"""What a browser gets, and what it is told about it."""

from __future__ import annotations

import re

import pytest
from tests.unit.admin.console.conftest import Bench

from tidegate.admin.console.pages import PAGES, POLICY


@pytest.mark.parametrize("page", [*PAGES, "requests/req_1", "nowhere"])
def test_every_page_has_a_strict_policy_and_nothing_inline(bench: Bench, page: str) -> None:
    """No script or style of its own, no handler in an attribute, nothing from elsewhere."""
    bench.sign_in()
    answer = bench.client.get(f"/console/{page}")
    assert (404 if page == "nowhere" else 200) == answer.status_code
    assert POLICY == answer.headers["content-security-policy"]
    assert "unsafe" not in POLICY
    assert "no-store" == answer.headers["cache-control"]
    assert ["nosniff", "no-referrer"] == [answer.headers[name] for name in ("x-content-type-options", "referrer-policy")]
    assert not re.search(r"\son[a-z]+=|\sstyle=|<style|javascript:|<script(?![^>]*(src=\"/console/static/|application/json))", answer.text)
    assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)
    assert "built-in method" not in answer.text


def test_the_button_that_copies_a_key_says_so(bench: Bench) -> None:
    """Whatever methods the texts' container has."""
    bench.sign_in()
    assert '<button type="button" id="copy">Copy</button>' in bench.client.get("/console/keys").text


def test_static_files_are_checked_anew_and_sent_when_changed(bench: Bench) -> None:
    """An upgrade needs no cleared cache; without a session there is nothing secret in them."""
    answer = bench.client.get("/console/static/base.js")
    assert (200, "no-cache", POLICY) == (answer.status_code, answer.headers["cache-control"], answer.headers["content-security-policy"])
    again = bench.client.get("/console/static/base.js", headers={"if-none-match": answer.headers["etag"]})
    assert 304 == again.status_code
    assert 404 == bench.client.get("/console/static/../pages.py").status_code


def test_a_node_without_tables_says_how_to_get_them(bench: Bench) -> None:
    """On each page that would ask them."""
    bench.desk.fake_asker = None
    bench.sign_in()
    for page in ("traffic", "requests", "query"):
        assert "pip install" in bench.client.get(f"/console/{page}").text
    answer = bench.client.get("/admin/traffic")
    assert (503, "record_store_unavailable") == (answer.status_code, answer.json()["error"]["code"])
    assert "analytics" in answer.json()["error"]["message"]


def test_what_a_person_typed_stands_on_a_page_as_text(bench: Bench) -> None:
    """A request id in the address is nobody's markup."""
    bench.sign_in()
    text = bench.client.get("/console/requests/%3Cb%3Ex").text
    assert "<b>x" not in text
