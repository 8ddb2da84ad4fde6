"""What the forwarder answers itself: a page for a browser, a few lines of text for anything else."""

from __future__ import annotations

import html
from typing import NamedTuple

from .. import errors
from ..wire import http1
from .verdicts import Verdict

__all__ = ["Page", "for_error", "for_message", "for_verdict", "foreign_host", "foreign_origin", "not_http", "render"]

RELOAD_SECONDS = 1
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:15vh auto;padding:0 1em;color-scheme:light dark}"
    "h1{font-size:1.4em}p{white-space:pre-line}small{opacity:.6}"
)


class Page(NamedTuple):
    """A page. ``reloads``: it is worth asking again in a moment."""

    status: int
    title: str
    advice: str
    reloads: bool = False


def render(page: Page, request: http1.Request | None, *, keep: bool) -> bytes:
    """The whole answer. ``request`` is None if there was none that could be understood."""
    is_page = request is not None and request.method in {"GET", "HEAD"} and _wants_html(request)
    kind, text = ("text/html", _to_html(page)) if is_page else ("text/plain", f"vmnest: {page.title}\n{page.advice}\n")
    body = text.encode()
    fields = [
        ("Content-Type", f"{kind}; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if page.reloads:
        fields.append(("Retry-After", str(RELOAD_SECONDS)))
    if not keep:
        fields.append(("Connection", "close"))
    elif request is not None and request.minor == 0:
        fields.append(("Connection", "keep-alive"))
    head = http1.serialize_response(http1.Response(page.status, http1.REASONS.get(page.status, "Error"), fields))
    return head if request is not None and request.method == "HEAD" else head + body


def _wants_html(request: http1.Request) -> bool:
    return any(
        each.partition(";")[0].strip().lower() == "text/html" for each in http1.elements(request.fields, "accept")
    )


def _to_html(page: Page) -> str:
    title, advice = html.escape(page.title), html.escape(page.advice)
    again = f'<meta http-equiv="refresh" content="{RELOAD_SECONDS}">' if page.reloads else ""
    note = "This page reloads itself. " if page.reloads else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}<title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{advice}</p>"
        f"<small>{note}vmnest forward</small></body></html>\n"
    )


def for_verdict(verdict: Verdict, *, remote: int) -> Page:
    """There is no answer of the server's own."""
    if verdict is Verdict.NOT_LISTENING:
        advice = f"Is your server still starting? It has to listen on port {remote}, on any address or on loopback."
        return Page(502, f"Nothing listens on port {remote} in the sandbox", advice, reloads=True)
    if verdict is Verdict.BROKEN:
        advice = f"Whatever listens on port {remote} ended the connection without an answer, or does not speak HTTP."
        return Page(502, f"No answer from port {remote} in the sandbox", advice)
    if verdict is Verdict.PORT_REFUSED:
        return Page(403, f"Port {remote} is not to be had", "The sandbox's agent or the platform keeps it for itself.")
    if verdict is Verdict.TOKEN_REFUSED:
        advice = "A new token was tried, too. The policy of a VPC endpoint may refuse (lambda:ConnectMicrovm)."
        return Page(502, "The sandbox's endpoint does not accept the token", advice)
    if verdict is Verdict.THROTTLED:
        advice = "Try again with fewer requests at a time: a larger image is allowed more."
        return Page(429, "The sandbox's endpoint takes no more requests for now", advice, reloads=True)
    if verdict is Verdict.FULL:
        return Page(503, "The sandbox's agent passes on as many requests as it can", "Close some connections.", True)
    if verdict is Verdict.UNNAMED:
        advice = "What was asked for may have been done: it is not asked for again. If this stays: vmnest ps NAME"
        return Page(502, "No answer from the sandbox", advice)
    return Page(502, "The sandbox cannot be reached", "It may be resuming. If this stays: vmnest ps NAME", reloads=True)


def for_error(error: errors.VmnestError) -> Page:
    """The sandbox cannot be asked."""
    is_over = isinstance(error, (errors.SandboxSuspendedError, errors.MicroVMEndedError, errors.SandboxNotFoundError))
    return Page(503 if is_over else 502, error.message, error.hint or "", reloads=not is_over)


def for_message(error: http1.MessageError) -> Page:
    """The request is none, or not a safe one."""
    advice = "A request that two parties could read in two ways is not passed on." if error.status == 400 else ""
    return Page(error.status, f"The request cannot be passed on: {error.message}", advice)


def foreign_host(host: str) -> Page:
    """``Host`` is a name that anybody might have made lead here."""
    advice = (
        "A site could reach into the sandbox by a name of its own that leads to this machine, so only localhost, "
        f"addresses and names without a dot are served.\nIf the name is yours: vmnest forward --allow-host {host}"
    )
    return Page(403, f"This forwarder does not answer to {host!r}", advice)


def foreign_origin() -> Page:
    """A page of another site asks the agent itself."""
    return Page(403, "Pages of other origins may not use the sandbox's agent", "Its port runs any command.")


def not_http(*, is_tls: bool) -> Page:
    """What came is no HTTP."""
    if is_tls:
        advice = "This end speaks plain http, on this machine only; the way to the sandbox is encrypted."
        return Page(400, "Use http://, not https://", advice)
    advice = "The way into a sandbox carries HTTP and WebSockets. Raw TCP (ssh, databases) does not pass."
    return Page(400, "That is not HTTP", advice)
