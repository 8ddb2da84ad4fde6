"""What the forwarder answers itself: a page for a browser, a few lines of text for anything else."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from .. import errors
from ..wire import http1
from . import hosts
from .gate import OVER
from .verdicts import Verdict

__all__ = [
    "Page",
    "for_error",
    "for_message",
    "for_verdict",
    "foreign_host",
    "foreign_origin",
    "not_http",
    "render",
    "token_renewed",
]

RELOAD_SECONDS = 1
_SHOWN_CHARS = 80  # of what came from outside
_CODE = re.compile("`([^`]*)`")

# Nothing is loaded from anywhere: the next request of this browser belongs to the server behind the forwarder.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """\
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--faint:#656d76;--line:#d8dee4;--code:#eff1f3;--mark:#bf5b04}
@media(prefers-color-scheme:dark){
:root{--paper:#15181c;--ink:#e6e8eb;--faint:#9198a1;--line:#30363d;--code:#262b31;--mark:#f0993e}}
body{margin:0;padding:16vh 1.5rem 2rem;background:var(--paper);color:var(--ink);
font:1rem/1.6 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:38rem;margin:0 auto}
h1{margin:.2em 0 .6em;font-size:1.5rem;line-height:1.3;overflow-wrap:anywhere}
p{margin:0 0 1.5em;white-space:pre-line;overflow-wrap:anywhere}
code{padding:.15em .35em;border-radius:4px;background:var(--code);font:.9em ui-monospace,Menlo,Consolas,monospace}
.status{margin:0;color:var(--mark);font-weight:600}
footer{padding-top:.8em;border-top:1px solid var(--line);color:var(--faint);font-size:.875rem}
.wait{display:inline-block;width:.6em;height:.6em;margin-right:.6em;border-radius:50%;background:var(--mark);
animation:wait 1s ease-in-out infinite}
@keyframes wait{50%{opacity:.2}}
@media(prefers-reduced-motion:reduce){.wait{animation:none}}"""

_HTML = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
{again}<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}
</style>
</head>
<body>
<main>
<p class="status">{status}</p>
<h1>{title}</h1>
<p>{advice}</p>
<footer>{note} comes from <code>vmnest forward</code>, not from your server.</footer>
</main>
</body>
</html>
"""


class Page(NamedTuple):
    """A page. ``advice``: what to do next, with commands in backquotes; ``reloads``: it is worth asking again soon."""

    status: int
    title: str
    advice: str
    reloads: bool = False


def render(page: Page, request: http1.Request | None, *, keep: bool) -> bytes:
    """The whole answer. ``request`` is None if there was none that could be understood."""
    is_page = request is not None and _wants_html(request)
    body = (_to_html(page, reloads=page.reloads and _may_reload(request)) if is_page else _to_text(page)).encode()
    fields = [
        ("Content-Type", f"{'text/html' if is_page else 'text/plain'}; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if is_page:
        fields.append(("Content-Security-Policy", _POLICY))
    if page.reloads:
        fields.append(("Retry-After", str(RELOAD_SECONDS)))
    if not keep:
        fields.append(("Connection", "close"))
    elif request is not None and request.minor == 0:
        fields.append(("Connection", "keep-alive"))
    head = http1.serialize_response(http1.Response(page.status, http1.REASONS.get(page.status, "Error"), fields))
    return head if request is not None and request.method == "HEAD" else head + body


def _wants_html(request: http1.Request) -> bool:
    """It is a browser's, for a page or a frame: for all else they do not ask for HTML in particular."""
    accepted = (each.partition(";")[0].strip().lower() for each in http1.elements(request.fields, "accept"))
    return "text/html" in accepted


def _may_reload(request: http1.Request | None) -> bool:
    """A browser that loads the page again sends the same request; others would become a GET, or be sent twice."""
    return request is not None and request.method in {"GET", "HEAD"}


def _to_text(page: Page) -> str:
    return "".join(f"{line}\n" for line in (f"vmnest: {page.title}", page.advice) if line)


def _to_html(page: Page, *, reloads: bool) -> str:
    title = html.escape(page.title)
    advice = _CODE.sub(r"<code>\1</code>", html.escape(page.advice))
    again = f'<meta http-equiv="refresh" content="{RELOAD_SECONDS}">\n' if reloads else ""
    note = '<span class="wait"></span>This page reloads itself. It' if reloads else "This page"
    return _HTML.format(again=again, title=title, style=_STYLE, status=page.status, advice=advice, note=note)


# -- the pages ---------------------------------------------------------------------------------------------------------


def for_verdict(verdict: Verdict, *, remote: int) -> Page:
    """There is no answer of the server's own."""
    return _PAGES[verdict]._replace(
        title=_PAGES[verdict].title.format(remote=remote), advice=_PAGES[verdict].advice.format(remote=remote)
    )


_PAGES = {
    Verdict.NOT_LISTENING: Page(
        502,
        "Nothing listens on port {remote} in the sandbox",
        "Is your server still starting?\n"
        "It has to listen on port {remote}, on any address or on loopback. `vmnest jobs NAME` lists what runs there.",
        reloads=True,
    ),
    Verdict.BROKEN: Page(
        502,
        "No answer from port {remote} in the sandbox",
        "Whatever listens there ended the connection without an answer. Its own log may tell why; `vmnest jobs NAME` "
        "lists what runs there.\nIf it does not speak HTTP, it cannot be reached in this way.",
    ),
    Verdict.PORT_REFUSED: Page(
        403,
        "Port {remote} is not to be had",
        "The platform or the sandbox's agent keeps it for itself. Have your server listen on another port.",
    ),
    Verdict.TOKEN_REFUSED: Page(
        502,
        "The sandbox's endpoint does not accept the token",
        "A new one was tried, too. Where requests go through a VPC endpoint, its policy has to allow "
        "lambda:ConnectMicrovm.",
    ),
    Verdict.THROTTLED: Page(
        429,
        "The sandbox's endpoint takes no more requests for now",
        "Try again with fewer requests at a time. A sandbox of a larger image is allowed more.",
        reloads=True,
    ),
    Verdict.FULL: Page(
        503,
        "The sandbox's agent passes on as many connections as it can",
        "Close some: WebSockets and streams that are open count, too.",
        reloads=True,
    ),
    Verdict.NO_RELAY: Page(
        502,
        "The sandbox's agent passes no requests on",
        "It says that it does, but what came is no such answer. Go past it: `vmnest forward --direct`",
    ),
    Verdict.UNNAMED: Page(
        502,
        "No answer from the sandbox",
        "What was asked for may have been done, so it was not asked for again.\n"
        "If this stays, see how the sandbox is: `vmnest ps NAME`",
    ),
    Verdict.UNREACHABLE: Page(
        502,
        "The sandbox cannot be reached",
        "It may be resuming. If this stays, see how it is: `vmnest ps NAME`",
        reloads=True,
    ),
}


def token_renewed() -> Page:
    """The endpoint wanted a new token when much of the request was on its way already."""
    advice = "The token was no longer good, and too much had been sent to send it again. There is a new one now."
    return Page(503, "The request has to be sent again", advice, reloads=True)


def for_error(error: errors.VmnestError) -> Page:
    """The sandbox cannot be asked."""
    is_over = isinstance(error, OVER)
    advice = error.hint or ("The forwarder has ended." if is_over else "It is tried again with the next request.")
    return Page(503 if is_over else 502, error.message, advice, reloads=not is_over)


def for_message(error: http1.MessageError) -> Page:
    """The request is none, or not a safe one."""
    return Page(error.status, f"The request cannot be passed on: {error.message}", _ADVICE.get(error.status, ""))


_ADVICE = {
    400: "What two parties could read in two ways is not passed on.",
    414: "Put what is long into the body of a POST.",
    431: "Cookies are often why: a browser sends those of all servers on localhost to each of them. Delete some.",
    501: "Of transfer codings, only chunked can be carried.",
    505: "Use HTTP/1.1.",
}


def foreign_host(host: str) -> Page:
    """``Host`` is a name that anybody might have made lead here."""
    advice = (
        "A site could reach into the sandbox by a name of its own that leads to this machine. So only localhost, "
        "addresses and names without a dot are answered to."
    )
    place = hosts.parse(host)
    if place is not None:
        advice += f"\nIf the name is yours: `vmnest forward --allow-host {place.name}`"
    return Page(403, f"This forwarder does not answer to {_shorten(host)!r}", advice)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def foreign_origin() -> Page:
    """A page of another site asks the agent itself."""
    advice = (
        "Whoever may use its port runs any command in the sandbox. Ask it from a page of the same address, or none."
    )
    return Page(403, "Pages of other sites may not use the sandbox's agent", advice)


def not_http(*, is_tls: bool) -> Page:
    """What came is no HTTP."""
    if is_tls:
        return Page(
            400,
            "Use http://, not https://",
            "This end speaks plain HTTP, on this machine only. The way on to a sandbox in the cloud is encrypted.",
        )
    return Page(
        400,
        "That is not HTTP",
        "The way into a sandbox carries HTTP and WebSockets. Raw TCP (databases, ssh) does not pass: use such programs "
        "inside, with `vmnest exec` and `vmnest shell`, or through a WebSocket.",
    )
