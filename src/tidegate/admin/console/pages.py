"""What a browser gets: pages, scripts and styles, signing in and out.

A page holds texts, headings and empty tables; its script asks the admin API for the figures, as anybody could. Invariants: nothing is
loaded from elsewhere and nothing runs that is not a file of ours; no page holds a secret; a page without a session leads to the login.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from urllib.parse import parse_qs

import jinja2
import markupsafe
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tidegate.admin.access import Door
from tidegate.admin.console import texts
from tidegate.admin.exchange import read_body
from tidegate.admin.sessions import COOKIE, SESSION_S, LoginGuard, Session
from tidegate.admin.view import NodeDesk
from tidegate.errors import Forbidden, TidegateError
from tidegate.language import Language
from tidegate.wiring.parts import listed_models

PAGES: Final = ("overview", "traffic", "requests", "limits", "upstreams", "keys", "explain", "query", "playground")
"""In the order of the navigation; each has a template and a script of its name."""
THEME_COOKIE: Final = "tidegate_theme"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_HERE: Final = Path(__file__).parent
_MAX_LOGIN_BYTES: Final = 4096
_CODE: Final = re.compile(r"`([^`]*)`")
_LONG_S: Final = 31_536_000
_SEE_OTHER: Final = 303


class Pages:
    """The routes under `/console`, and `/` that leads there."""

    def __init__(
        self, desk: NodeDesk, door: Door, *, wall_clock: Callable[[], float], version: str, has_development_key: Callable[[], bool]
    ) -> None:
        self._desk = desk
        self._door = door
        self._wall_clock = wall_clock
        self._has_development_key = has_development_key
        self._guard = LoginGuard()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["code"] = _with_code
        self._templates.globals["version"] = version

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._to_overview, methods=["GET"]),
            Route("/console", self._to_overview, methods=["GET"]),
            Route("/console/login", self._login, methods=["GET", "POST"]),
            Route("/console/logout", self._logout, methods=["POST"]),
            Mount("/console/static", _Static(directory=_HERE / "static")),
            Route("/console/requests/{request_id}", self._page, methods=["GET"]),
            Route("/console/{page}", self._page, methods=["GET"]),
        ]

    async def _to_overview(self, _: Request) -> Response:
        return RedirectResponse("/console/overview", _SEE_OTHER, headers=SECURITY_HEADERS)

    async def _page(self, request: Request) -> Response:
        name = "request" if "request_id" in request.path_params else request.path_params["page"]
        if name not in (*PAGES, "request"):
            return self._render(request, "missing.html", status=404, session=None)
        session = await self._door.session(request.cookies.get(COOKIE, ""))
        if session is None:
            return RedirectResponse("/console/login", _SEE_OTHER, headers=SECURITY_HEADERS)
        return self._render(request, f"{name}.html", session=session, page=name)

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            session = await self._door.session(request.cookies.get(COOKIE, ""))
            if session is not None:
                return await self._to_overview(request)
            problem = "login_ended" if COOKIE in request.cookies else ""
            return self._render(request, "login.html", session=None, problem=problem)
        now = self._wall_clock()
        address = request.client.host if request.client is not None else ""
        wait_s = self._guard.wait_s(address, now=now)
        if wait_s:
            return self._render(request, "login.html", session=None, status=429, problem="login_wait", seconds=int(wait_s) + 1)
        _refuse_other_sites(request)
        key = parse_qs((await read_body(request, limit=_MAX_LOGIN_BYTES)).decode("utf-8", "replace")).get("key", [""])[0].strip()
        try:
            cookie = await self._door.begin_session(key)
        except TidegateError as error:
            self._guard.failed(address, now=now)
            problem = "login_ordinary" if isinstance(error, Forbidden) else "login_refused"
            return self._render(request, "login.html", session=None, status=403, problem=problem)
        answer = await self._to_overview(request)
        answer.set_cookie(COOKIE, cookie, max_age=SESSION_S, path="/", httponly=True, samesite="strict", secure=_is_https(request))
        return answer

    async def _logout(self, request: Request) -> Response:
        session = await self._door.session(request.cookies.get(COOKIE, ""))
        form = parse_qs((await read_body(request, limit=_MAX_LOGIN_BYTES)).decode("utf-8", "replace"))
        if session is not None and not session.is_sent_with(form.get("csrf", [""])[0]):
            raise Forbidden("Signing out needs the page's own token. Load the page again.")
        answer = RedirectResponse("/console/login", _SEE_OTHER, headers=SECURITY_HEADERS)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=_is_https(request))
        return answer

    def _render(
        self,
        request: Request,
        template: str,
        *,
        session: Session | None,
        status: int = 200,
        problem: str = "",
        seconds: int = 0,
        page: str = "",
    ) -> Response:
        asked = request.query_params.get("lang")
        language = texts.language_of(asked or request.cookies.get(texts.COOKIE), request.headers.get("accept-language", ""))
        words = texts.texts_of(language)
        theme = request.cookies.get(THEME_COOKIE, "")
        shown = self._templates.get_template(template).render(
            t=SimpleNamespace(**words),  # a dict's own methods would hide texts like `copy`
            texts=words,
            language=language,
            other_language=next(each for each in Language if each is not language),
            theme=theme if theme in ("light", "dark") else "",
            session=session,
            page=page,
            pages=PAGES,
            keeps_tables=self._desk.asker is not None,
            models=listed_models(self._desk.configuration),
            has_development_key=self._has_development_key(),
            here=request.url.path,
            problem=words[problem].format(seconds=seconds) if problem else "",
            subject=request.path_params.get("request_id", ""),
        )
        answer = HTMLResponse(shown, status, headers={**SECURITY_HEADERS, "cache-control": "no-store", "vary": "accept-language, cookie"})
        if asked:
            answer.set_cookie(texts.COOKIE, language, max_age=_LONG_S, path="/", samesite="strict", secure=_is_https(request))
        return answer


class _Static(StaticFiles):
    """Our own files. Asked for anew each time and sent only when changed, so that an upgrade needs no cleared cache."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        answer = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        answer.headers.update({**SECURITY_HEADERS, "cache-control": "no-cache"})
        return answer


def _refuse_other_sites(request: Request) -> None:
    """Refuse a form that another site's page sent: it would sign a person in as somebody else."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("The sign-in form was sent by another site.")


def _is_https(request: Request) -> bool:
    """Tell whether the browser came by TLS: by what a proxy in front says, which can only make the cookie stricter."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))


def _with_code(text: str) -> markupsafe.Markup:
    """Escape a text, and show what is between backticks as code."""
    return markupsafe.Markup(_CODE.sub(r"<code>\1</code>", html.escape(text, quote=False)))  # noqa: S704  escaped the step before
