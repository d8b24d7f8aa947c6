"""Who gets in, what a session may, and when it ends."""

from __future__ import annotations

import pytest
from tests.unit.admin.console.conftest import NOW, Bench

from tidegate.admin.sessions import COOKIE, CSRF_HEADER, SECRET_FILE, SESSION_S, LoginGuard, signing_secret
from tidegate.errors import ConfigurationError


def test_a_page_without_a_session_leads_to_the_login(bench: Bench) -> None:
    """And the figures answer 401."""
    answer = bench.client.get("/console/keys")
    assert (303, "/console/login") == (answer.status_code, answer.headers["location"])
    assert [401, 401] == [bench.client.get(path).status_code for path in ("/admin/overview", "/admin/events")]
    assert 303 == bench.client.get("/").status_code


def test_signing_in_gives_a_cookie_that_scripts_and_other_sites_cannot_use(bench: Bench) -> None:
    """And over TLS it goes by TLS only. The key itself is on no page."""
    answer = bench.client.post("/console/login", content=f"key={bench.key}")
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", f"max-age={SESSION_S}", "path=/"))
    assert "secure" not in cookie
    by_tls = bench.client.post("/console/login", content=f"key={bench.key}", headers={"x-forwarded-proto": "https"})
    assert "secure" in by_tls.headers["set-cookie"].lower()
    for page in ("overview", "keys", "playground"):
        text = bench.client.get(f"/console/{page}").text
        assert bench.key not in text
        assert bench.client.cookies[COOKIE] not in text


def test_a_change_by_session_needs_the_token_of_the_page(bench: Bench) -> None:
    """A form on another site has the cookie at best, never the token."""
    csrf = bench.sign_in()
    assert 200 == bench.client.get("/admin/keys").status_code
    assert [403, 403, 200] == [
        bench.client.put("/admin/drained/a", headers=headers).status_code for headers in ({}, {CSRF_HEADER: "x" * 64}, {CSRF_HEADER: csrf})
    ]
    assert [("a", True)] == bench.desk.told


def test_a_sign_in_sent_by_another_site_is_refused(bench: Bench) -> None:
    """Else a page elsewhere could sign a person in as somebody else."""
    answer = bench.client.post("/console/login", content=f"key={bench.key}", headers={"sec-fetch-site": "cross-site"})
    assert 403 == answer.status_code
    assert COOKIE not in bench.client.cookies


def test_a_session_ends_with_its_time_and_with_its_key(bench: Bench) -> None:
    """Twelve hours, a revocation, another token: each ends it at once."""
    bench.sign_in()
    bench.now = NOW + SESSION_S - 1
    assert 200 == bench.client.get("/admin/keys").status_code
    bench.now = NOW + SESSION_S
    assert 401 == bench.client.get("/admin/keys").status_code
    for end in (lambda key_id: bench.store.rotate(key_id, NOW, 3600.0), lambda key_id: bench.store.revoke(key_id, NOW)):
        bench.now = NOW
        key = bench._key("short", read_only=False)
        bench.sign_in(key)
        key_id = next(each.key_id for each in bench.store.list() if each.name == "short" and each.revoked_at is None)
        end(key_id)
        assert 401 == bench.client.get("/admin/keys").status_code
        bench.store.revoke(key_id, NOW)


def test_a_forged_cookie_is_none(bench: Bench) -> None:
    """Whatever it looks like."""
    bench.sign_in()
    good = bench.client.cookies[COOKIE]
    for bad in ("", "x", good[:-2] + "zz", good * 20, "e30.abc"):
        bench.client.cookies.clear()
        bench.client.cookies[COOKIE] = bad
        assert 401 == bench.client.get("/admin/keys").status_code


def test_a_read_only_key_sees_all_and_changes_nothing(bench: Bench) -> None:
    """By session and by itself; asking the tables is no change."""
    csrf = bench.sign_in(bench.reader)
    headers = {CSRF_HEADER: csrf}
    assert 200 == bench.client.get("/admin/upstreams").status_code
    assert 200 == bench.client.post("/admin/query", json={"sql": "SELECT 1 FROM requests"}, headers=headers).status_code
    assert 403 == bench.client.put("/admin/drained/a", headers=headers).status_code
    assert 403 == bench.client.post("/admin/keys", json={"name": "n"}, headers=headers).status_code
    assert 403 == bench.client.post("/admin/playground", json={}, headers=headers).status_code
    assert [403, 403, 403] == [
        bench.call(method, path, body, key=bench.reader).status_code
        for method, path, body in (
            ("POST", "/admin/keys", {"name": "n"}),
            ("DELETE", "/admin/keys/x", None),
            ("DELETE", "/admin/drained/a", None),
        )
    ]
    keys = bench.call("GET", "/admin/keys", key=bench.reader).json()["keys"]
    assert {"root": False, "reader": True} == {each["name"]: each["read_only"] for each in keys}
    assert [] == bench.desk.told


def test_only_an_admin_key_can_be_read_only(bench: Bench) -> None:
    """Another sees nothing of the admin API anyway."""
    answer = bench.call("POST", "/admin/keys", {"name": "n", "read_only": True})
    assert (400, "read_only") == (answer.status_code, answer.json()["error"]["param"])


def test_signing_out_ends_the_session_in_this_browser(bench: Bench) -> None:
    """It needs the page's token too: else any site could sign people out."""
    csrf = bench.sign_in()
    assert 403 == bench.client.post("/console/logout", content="csrf=x").status_code
    assert 303 == bench.client.post("/console/logout", content=f"csrf={csrf}").status_code
    assert 401 == bench.client.get("/admin/keys").status_code


def test_a_key_for_requests_is_told_from_a_wrong_one(bench: Bench) -> None:
    """It works elsewhere, so that somebody would look for the mistake in vain."""
    ordinary = bench.store.create(name="app", tenant="ops", user="ops", now=NOW).token.reveal()
    said = [bench.client.post("/console/login", content=f"key={key}").text for key in (ordinary, "tg-wrong")]
    assert [True, False] == ["That key works for requests, and is no admin key" in text for text in said]


def test_failed_sign_ins_are_counted(bench: Bench) -> None:
    """After five within a minute even the right key waits; the log and the disk are spared."""
    assert [403] * 5 == [bench.client.post("/console/login", content="key=tg-wrong").status_code for _ in range(5)]
    answer = bench.client.post("/console/login", content=f"key={bench.key}")
    assert 429 == answer.status_code
    assert "Try again in 61 s" in answer.text or "Try again in 60 s" in answer.text
    bench.now = NOW + 61
    assert 303 == bench.client.post("/console/login", content=f"key={bench.key}").status_code


def test_the_guard_holds_everybody_back_at_sixty_failures_and_forgets_addresses_beyond_its_bound() -> None:
    """Many addresses do not get around it, and cost no memory."""
    guard = LoginGuard()
    for number in range(60):
        assert 0.0 == guard.wait_s("fresh", now=0.0)
        guard.failed(f"address-{number}", now=0.0)
    assert 60.0 == guard.wait_s("fresh", now=0.0)
    assert 0.0 == guard.wait_s("fresh", now=60.0)
    for number in range(2000):
        guard.failed(f"other-{number}", now=100.0 + number)
    assert 1024 == len(guard._failures)


def test_the_signing_secret_outlives_a_restart_and_is_private(bench: Bench) -> None:
    """So sessions do, too."""
    path = bench.directory / SECRET_FILE
    assert signing_secret(bench.directory) == path.read_bytes()
    assert 0o600 == path.stat().st_mode & 0o777
    with pytest.raises(ConfigurationError, match="console-secret"):
        signing_secret(bench.directory / "missing")
