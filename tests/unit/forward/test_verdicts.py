"""Whose answer it is: the server's, the platform's or the relay's."""

import pytest

from vmnest._guest.agentd import wire
from vmnest.forward import verdicts
from vmnest.forward.verdicts import Verdict
from vmnest.wire import http1, names

RELAYS_OWN = {
    wire.RELAY_NOT_LISTENING: Verdict.NOT_LISTENING,
    wire.RELAY_REFUSED: Verdict.PORT_REFUSED,
    wire.RELAY_BROKEN: Verdict.BROKEN,
    wire.RELAY_FULL: Verdict.FULL,
}


def response_of(status, *fields):
    return http1.Response(status, "Reason", fields)


def relayed(status, *fields):
    return verdicts.judge(response_of(status, *fields), b"?", relayed=True)


def direct(status, *fields, body=b""):
    return verdicts.judge(response_of(status, *fields), body, relayed=False)


class TestThroughTheRelay:
    @pytest.mark.parametrize("status", [200, 204, 301, 400, 403, 404, 429, 500, 502, 503])
    @pytest.mark.parametrize("error", [(), ((names.PROXY_ERROR_HEADER, names.APP_CONNECT_FAILED),)])
    def test_what_bears_its_mark_is_the_servers_own(self, status, error):
        assert relayed(status, ("Vmnest-Relay", wire.RELAY_RELAYED), *error) is None

    @pytest.mark.parametrize(("said", "verdict"), RELAYS_OWN.items())
    def test_the_relay_says_why_there_is_no_answer(self, said, verdict):
        assert relayed(502, (wire.RELAY_HEADER, said)) is verdict

    def test_a_word_of_a_later_relay_is_passed_on(self):
        assert relayed(502, (wire.RELAY_HEADER, "something new")) is None

    @pytest.mark.parametrize(
        ("status", "error", "verdict"),
        [
            (403, None, Verdict.TOKEN_REFUSED),
            (403, names.UNAUTHORIZED, Verdict.TOKEN_REFUSED),
            (429, None, Verdict.THROTTLED),
            (502, None, Verdict.UNNAMED),
            (500, None, Verdict.UNNAMED),
            (503, None, Verdict.UNNAMED),
            (502, names.APP_CONNECT_FAILED, Verdict.UNREACHABLE),  # it is the agent that does not listen
            (502, names.MICROVM_CONNECT_FAILED, Verdict.UNREACHABLE),
            (502, "SOMETHING_NEW", Verdict.UNNAMED),
        ],
    )
    def test_without_its_mark_it_is_the_platform_that_speaks(self, status, error, verdict):
        fields = () if error is None else ((names.PROXY_ERROR_HEADER, error),)
        assert relayed(status, *fields) is verdict

    @pytest.mark.parametrize("status", [200, 204, 302, 404, 405])
    def test_an_agent_that_answers_itself_has_no_relay(self, status):
        assert relayed(status) is Verdict.NO_RELAY

    @pytest.mark.parametrize("status", [400, 413, 414, 431, 501, 505])
    def test_what_is_wrong_with_the_request_is_passed_on(self, status):
        assert relayed(status) is None


class TestStraightFromThePort:
    @pytest.mark.parametrize(
        ("status", "error", "verdict"),
        [
            (403, names.UNAUTHORIZED, Verdict.TOKEN_REFUSED),
            (429, "X", Verdict.THROTTLED),
            (502, names.APP_CONNECT_FAILED, Verdict.NOT_LISTENING),
            (502, names.MICROVM_CONNECT_FAILED, Verdict.UNREACHABLE),
            (500, "X", Verdict.UNNAMED),
            (400, "X", None),
            (200, "X", None),
        ],
    )
    def test_the_platform_names_its_errors(self, status, error, verdict):
        assert direct(status, (names.PROXY_ERROR_HEADER, error)) is verdict

    @pytest.mark.parametrize(
        ("body", "verdict"),
        [
            (names.BODY_NO_TOKEN, Verdict.TOKEN_REFUSED),
            (names.BODY_WRONG_TOKEN, Verdict.TOKEN_REFUSED),
            (names.BODY_WRONG_PORT, Verdict.PORT_REFUSED),
            (f"{names.BODY_WRONG_TOKEN}\n", Verdict.TOKEN_REFUSED),
            ("", None),
            ("Forbidden", None),
            (f"<p>{names.BODY_WRONG_TOKEN}</p>", None),
        ],
    )
    def test_a_403_is_known_by_its_words(self, body, verdict):
        assert direct(403, ("Content-Type", "text/plain"), body=body.encode()) is verdict

    def test_a_port_that_is_denied_by_name_is_not_a_matter_of_the_token(self):
        error = (names.PROXY_ERROR_HEADER, names.UNAUTHORIZED)
        assert direct(403, error, body=names.BODY_WRONG_PORT.encode()) is Verdict.PORT_REFUSED

    def test_the_words_alone_mean_nothing(self):
        assert direct(401, body=names.BODY_NO_TOKEN.encode()) is None

    def test_an_empty_502_without_a_type_may_be_the_platforms(self):
        assert direct(502, ("Content-Length", "0")) is Verdict.UNNAMED

    @pytest.mark.parametrize("body", [b"", b"?"])
    def test_a_502_that_says_something_is_the_servers(self, body):
        assert direct(502, ("Content-Type", "text/html"), body=body) is None
        assert direct(502, body=b"?") is None

    @pytest.mark.parametrize("status", [200, 301, 404, 429, 500, 503, 504])
    def test_all_else_is_the_servers(self, status):
        assert direct(status) is None

    def test_the_mark_of_a_relay_that_was_not_asked_means_nothing(self):
        assert direct(502, (wire.RELAY_HEADER, wire.RELAY_FULL), body=b"x") is None


class TestWantsBody:
    @pytest.mark.parametrize("status", [400, 403, 421, 502])
    def test_a_refusal_that_came_straight_is_looked_into(self, status):
        assert verdicts.wants_body(response_of(status), relayed=False)

    @pytest.mark.parametrize("status", [200, 201, 304, 404, 500, 503])
    def test_no_other_answer_waits_for_its_body(self, status):
        assert not verdicts.wants_body(response_of(status, ("Content-Length", "1900")), relayed=False)

    def test_but_for_the_one_that_webpack_gives(self):
        assert verdicts.wants_body(response_of(200, ("Content-Length", "19")), relayed=False)

    @pytest.mark.parametrize("status", [200, 400, 403, 421, 502])
    def test_what_comes_through_the_relay_needs_none(self, status):
        assert not verdicts.wants_body(response_of(status, ("Content-Length", "19")), relayed=True)


class TestHintOfHostCheck:
    @pytest.mark.parametrize(
        ("status", "body", "named"),
        [
            (
                403,
                b'Blocked request. This host ("x.on.aws") is not allowed.\n'
                b'To allow this host, add "x.on.aws" to `server.allowedHosts` in vite.config.js.',
                "server.allowedHosts in vite.config",
            ),
            (403, b'add "x" to `preview.allowedHosts` in vite.config.js.', "preview.allowedHosts"),
            (403, b"Blocked request. This host is not allowed.", "Vite"),
            (200, b"Invalid Host header", "devServer.allowedHosts"),
            (403, b"Invalid Host/Origin header", "devServer.allowedHosts"),
            (400, b"Invalid host header", "TrustedHostMiddleware"),
            (421, b"Invalid Host header", "TrustedHostMiddleware"),
            (400, b"<title>DisallowedHost\n          at /</title>", "ALLOWED_HOSTS"),
            (400, b"You may need to add 'x' to ALLOWED_HOSTS.", "ALLOWED_HOSTS"),
            (403, b"<h1>Blocked hosts: x.on.aws</h1>", "config.hosts"),
            (400, b"<h2>Bad Request - Invalid Hostname</h2>", "AllowedHosts"),
            (400, b'Untrusted Host "x.on.aws".', "trusted_hosts"),
        ],
    )
    def test_the_setting_of_that_server_is_named(self, status, body, named):
        assert named in (verdicts.hint_of_host_check(status, body) or "")

    @pytest.mark.parametrize(
        ("status", "body"),
        [(403, b""), (403, b"Forbidden"), (200, b"Hello"), (404, b"Invalid Host header"), (400, b"Bad Request")],
    )
    def test_other_refusals_have_no_hint(self, status, body):
        assert verdicts.hint_of_host_check(status, body) is None
