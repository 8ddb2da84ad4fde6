"""What the forwarder answers itself."""

from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.forward import pages
from vmnest.forward.pages import Page
from vmnest.forward.verdicts import Verdict
from vmnest.wire import http1

CHROMIUM = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
STARTING = Page(502, "Nothing there", "Wait & see: `vmnest jobs NAME`", reloads=True)
VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """What a browser finds; every element that is opened is closed."""

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.tags = []
        self.text = {}
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text[self.open[-1]] = self.text.get(self.open[-1], "") + data

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def request_of(*fields, method="GET", minor=1):
    return http1.Request(method, "/a", [("Host", "localhost"), *fields], minor)


def browser(method="GET", accept=CHROMIUM):
    return request_of(("Accept", accept), method=method)


def rendered(page, request, *, keep=True):
    head, _, body = pages.render(page, request, keep=keep).partition(b"\r\n\r\n")
    return http1.parse_response(head), body.decode()


def named(response, name):
    return http1.first(response.fields, name)


class TestForBrowsers:
    def test_it_is_a_page_that_says_what_and_what_to_do(self):
        response, body = rendered(STARTING, browser())
        outline = Outline(body)
        assert response.status == 502
        assert named(response, "content-type") == "text/html; charset=utf-8"
        assert outline.text["title"] == outline.text["h1"] == "Nothing there"
        assert outline.text["p"] == "502Wait & see: "
        assert outline.text["code"].startswith("vmnest jobs NAME")
        assert body.startswith("<!doctype html>")

    def test_it_loads_itself_again(self):
        response, body = rendered(STARTING, browser())
        assert {"http-equiv": "refresh", "content": "1"} in Outline(body).named("meta")
        assert named(response, "retry-after") == "1"
        assert "reloads itself" in body

    def test_but_not_where_that_makes_no_sense(self):
        response, body = rendered(STARTING._replace(reloads=False), browser())
        assert "http-equiv" not in body + str(response.fields)
        assert named(response, "retry-after") is None
        assert "reloads itself" not in body

    def test_a_form_is_not_sent_twice_by_itself(self):
        response, body = rendered(STARTING, browser("POST"))
        assert named(response, "content-type") == "text/html; charset=utf-8"
        assert "http-equiv" not in body
        assert named(response, "retry-after") == "1"

    def test_nothing_is_loaded_from_anywhere(self):
        response, body = rendered(STARTING, browser())
        outline = Outline(body)
        assert not outline.named("script") + outline.named("img") + outline.named("a")
        assert outline.named("link") == [{"rel": "icon", "href": "data:,"}]
        assert "url(" not in body
        assert "default-src 'none'" in (named(response, "content-security-policy") or "")

    def test_it_is_light_or_dark_as_the_browser_likes(self):
        _, body = rendered(STARTING, browser())
        assert "color-scheme:light dark" in body
        assert "prefers-color-scheme:dark" in body

    def test_head_has_the_length_but_no_body(self):
        response, body = rendered(STARTING, browser("HEAD"))
        assert body == ""
        assert named(response, "content-length") == str(len(rendered(STARTING, browser())[1].encode()))

    @given(st.text(), st.text())
    @example("<script>alert(1)</script>", "<img src=x onerror=alert(1)>")
    @example("</title><b>", "`</code><b>`")
    def test_nothing_that_came_from_outside_is_markup(self, title, advice):
        _, body = rendered(Page(502, title, advice), browser())
        allowed = {"html", "head", "meta", "title", "link", "style", "body", "main", "p", "h1", "footer", "code"}
        assert {tag for tag, _ in Outline(body).tags} == allowed


class TestForOthers:
    @pytest.mark.parametrize(
        "request_",
        [
            None,
            request_of(),
            request_of(("Accept", "*/*")),
            request_of(("Accept", "application/json")),
            request_of(("Accept", "text/*")),
            request_of(("Accept", "image/avif,image/webp,*/*;q=0.8")),
            request_of(("Accept", "text/event-stream")),
            request_of(("Accept", "x-text/html")),
        ],
    )
    def test_it_is_a_few_lines_of_text(self, request_):
        response, body = rendered(STARTING, request_)
        assert named(response, "content-type") == "text/plain; charset=utf-8"
        assert body == "vmnest: Nothing there\nWait & see: `vmnest jobs NAME`\n"
        assert named(response, "retry-after") == "1"

    def test_without_advice_it_is_one_line(self):
        assert rendered(Page(400, "No", ""), None)[1] == "vmnest: No\n"


class TestTheHead:
    @pytest.mark.parametrize("request_", [None, request_of(), browser(), browser("POST"), request_of(minor=0)])
    @pytest.mark.parametrize("keep", [True, False])
    def test_it_is_whole_and_not_to_be_stored(self, request_, keep):
        response, body = rendered(STARTING, request_, keep=keep)
        assert http1.response_framing(response, method="GET") == http1.Framing(http1.LENGTH, len(body.encode()))
        assert named(response, "cache-control") == "no-store"
        assert named(response, "x-content-type-options") == "nosniff"

    @pytest.mark.parametrize(
        ("keep", "minor", "said"), [(True, 1, None), (False, 1, "close"), (True, 0, "keep-alive"), (False, 0, "close")]
    )
    def test_it_says_whether_the_connection_goes_on(self, keep, minor, said):
        response, _ = rendered(STARTING, request_of(minor=minor), keep=keep)
        assert named(response, "connection") == said

    @pytest.mark.parametrize("status", [400, 403, 414, 429, 431, 501, 502, 503, 505])
    def test_every_status_has_its_reason(self, status):
        response, _ = rendered(Page(status, "a", "b"), None)
        assert response.reason == http1.REASONS[status]


class TestThePages:
    @pytest.mark.parametrize("verdict", Verdict)
    def test_every_verdict_has_one(self, verdict):
        page = pages.for_verdict(verdict, remote=3000)
        assert page.status in {403, 429, 502, 503}
        assert page.title
        assert page.advice
        assert "{" not in page.title + page.advice

    @pytest.mark.parametrize("verdict", [Verdict.NOT_LISTENING, Verdict.BROKEN, Verdict.PORT_REFUSED])
    def test_what_is_wrong_with_a_port_names_it(self, verdict):
        assert "ort 3000" in pages.for_verdict(verdict, remote=3000).title

    def test_only_what_passes_by_itself_is_asked_for_again(self):
        again = {verdict for verdict in Verdict if pages.for_verdict(verdict, remote=1).reloads}
        assert again == {Verdict.NOT_LISTENING, Verdict.UNREACHABLE, Verdict.THROTTLED, Verdict.FULL}

    @pytest.mark.parametrize(
        "error",
        [errors.SandboxSuspendedError("it was stopped", hint="vmnest start demo"), errors.MicroVMEndedError("x")],
    )
    def test_a_sandbox_that_is_gone_is_not_asked_again(self, error):
        page = pages.for_error(error)
        assert (page.status, page.title, page.reloads) == (503, error.message, False)
        assert page.advice == (error.hint or "The forwarder has ended.")

    def test_a_sandbox_that_cannot_be_asked_now_may_be_later(self):
        page = pages.for_error(errors.TransportError("no route"))
        assert (page.status, page.title, page.reloads) == (502, "no route", True)

    @pytest.mark.parametrize("status", [400, 414, 431, 501, 505])
    def test_a_request_that_is_refused_is_told_why(self, status):
        page = pages.for_message(http1.MessageError("a reason", status=status))
        assert page.status == status
        assert "a reason" in page.title
        assert page.advice

    def test_a_foreign_host_is_told_how_to_be_allowed(self):
        page = pages.foreign_host("Box.Example:8000")
        assert page.status == 403
        assert "'Box.Example:8000'" in page.title
        assert "`vmnest forward --allow-host box.example`" in page.advice

    @pytest.mark.parametrize("host", ["", "a b", "x`; rm -rf ~", "h\xe4\x85\x9b31m", "me@evil.example"])
    def test_what_is_no_host_is_no_part_of_a_command(self, host):
        page = pages.foreign_host(host)
        assert "--allow-host" not in page.advice
        assert page.title.isprintable()

    def test_a_long_host_is_shown_in_part(self):
        assert len(pages.foreign_host("a.b" * 20000).title) < 200

    def test_a_foreign_origin_is_refused(self):
        assert pages.foreign_origin().status == 403

    def test_raw_tcp_is_told_that_it_does_not_pass(self):
        page = pages.not_http(is_tls=False)
        assert page.status == 400
        assert "Raw TCP" in page.advice

    def test_tls_is_told_to_leave_it(self):
        assert "http://" in pages.not_http(is_tls=True).title
