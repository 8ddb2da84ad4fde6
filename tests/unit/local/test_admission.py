"""The data plane's rules: which request may pass to which port."""

import pytest

from tests.support.endpoints import open_endpoint
from vmnest.local import admission, connectors
from vmnest.wire import http1, names


@pytest.fixture(scope="module")
def endpoint():
    with open_endpoint({}) as one:
        yield one


def request(*fields, target="/", method="GET", host=True):
    return http1.Request(method, target, [*([("Host", "h")] if host else []), *fields])


def websocket(*subprotocols, fields=()):
    return request(
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "websocket"),
        *(("Sec-WebSocket-Protocol", line) for line in subprotocols),
        *fields,
    )


def admit(endpoint, asked, *, now=0.0):
    return admission.admit(asked, endpoint.record, seal=endpoint.seal, now=now)


def refusal(endpoint, asked, **options):
    with pytest.raises(admission.RefusedError) as caught:
        admit(endpoint, asked, **options)
    return caught.value.status, caught.value.body


def auth(endpoint, *ports, **options):
    return ("x-AWS-proxy-auth", endpoint.token(*ports, **options))


class TestTokens:
    def test_the_right_token_passes(self, endpoint):
        assert admit(endpoint, request(auth(endpoint))).port == 8080

    def test_no_token(self, endpoint):
        assert refusal(endpoint, request()) == (403, "Request missing authentication")

    @pytest.mark.parametrize("token", ["", "x", "a..b.c.d", "eyJ.x"])
    def test_a_token_that_cannot_be_opened_counts_as_none(self, endpoint, token):
        asked = request((names.PROXY_AUTH_HEADER, token))
        assert refusal(endpoint, asked) == (403, "Request missing authentication")

    def test_a_token_in_the_query_does_not_count(self, endpoint):
        asked = request(target=f"/?X-aws-proxy-auth={endpoint.token()}")
        assert refusal(endpoint, asked) == (403, "Request missing authentication")

    def test_two_tokens_are_none(self, endpoint):
        asked = request(auth(endpoint), auth(endpoint))
        assert refusal(endpoint, asked) == (403, "Request missing authentication")

    def test_another_vms_token(self, endpoint):
        asked = request(auth(endpoint, microvm_id="microvm-other"))
        assert refusal(endpoint, asked) == (403, "Token authentication failed")

    def test_an_expired_token(self, endpoint):
        asked = request(auth(endpoint, expires_in=-1))
        assert refusal(endpoint, asked, now=1e11) == (403, "Token authentication failed")

    def test_a_shell_token_reaches_no_port(self, endpoint):
        assert refusal(endpoint, request(auth(endpoint, (1, 65535), for_shell=True))) == (502, "")


class TestPorts:
    def test_the_header_counts(self, endpoint):
        assert admit(endpoint, request(auth(endpoint, 3000), (names.PROXY_PORT_HEADER, "3000"))).port == 3000

    @pytest.mark.parametrize("port", ["8081", "1", "65535"])
    def test_a_port_outside_the_token_is_denied(self, endpoint, port):
        asked = request(auth(endpoint), (names.PROXY_PORT_HEADER, port))
        assert refusal(endpoint, asked) == (403, "Access to port denied")

    def test_the_default_port_must_be_in_the_token_too(self, endpoint):
        assert refusal(endpoint, request(auth(endpoint, 9000))) == (403, "Access to port denied")

    @pytest.mark.parametrize("port", ["0", "70000", "8080/", "abc", "", "+80", "8 0", "٨٠", "8080,8081"])
    def test_what_is_no_port_is_400(self, endpoint, port):
        status, _ = refusal(endpoint, request(auth(endpoint), (names.PROXY_PORT_HEADER, port)))
        assert status == 400

    def test_two_ports_are_400(self, endpoint):
        fields = [(names.PROXY_PORT_HEADER, "8080")] * 2
        assert refusal(endpoint, request(auth(endpoint), *fields))[0] == 400

    def test_a_vm_without_http_ingress_has_no_ports(self):
        with open_endpoint({}, ingress=[connectors.managed("SHELL_INGRESS")]) as one:
            assert refusal(one, request(auth(one))) == (403, "Access to port denied")


class TestForms:
    @pytest.mark.parametrize(("method", "target"), [("GET", "http://h/"), ("CONNECT", "h:80"), ("GET", "*")])
    def test_other_targets_are_400(self, endpoint, method, target):
        assert refusal(endpoint, request(auth(endpoint), method=method, target=target))[0] == 400

    def test_options_may_ask_about_the_whole_server(self, endpoint):
        assert admit(endpoint, request(auth(endpoint), method="OPTIONS", target="*")).port == 8080

    @pytest.mark.parametrize("fields", [[], [("Host", "a"), ("Host", "b")]], ids=["none", "two"])
    def test_one_host_is_needed(self, endpoint, fields):
        assert refusal(endpoint, request(auth(endpoint), *fields, host=False))[0] == 400

    def test_an_upgrade_to_anything_but_websocket_is_400(self, endpoint):
        asked = request(auth(endpoint), ("Connection", "Upgrade"), ("Upgrade", "h2c"))
        assert refusal(endpoint, asked)[0] == 400


class TestFields:
    def test_the_platforms_fields_end_here_known_or_not(self, endpoint):
        fields = [("X-Aws-Proxy-Port", "8080"), ("x-aws-proxy-future", "1"), ("X-aws-proxyx", "kept"), ("A", "1")]
        admitted = admit(endpoint, request(auth(endpoint), *fields))
        assert list(admitted.fields) == [("Host", "h"), ("X-aws-proxyx", "kept"), ("A", "1")]

    def test_an_application_subprotocol_without_the_platforms_stays_as_it_is(self, endpoint):
        admitted = admit(endpoint, websocket("chat,  other", fields=[auth(endpoint)]))
        assert ("Sec-WebSocket-Protocol", "chat,  other") in admitted.fields
        assert not admitted.marker_offered


class TestWebSockets:
    def offered(self, endpoint, *further):
        token = endpoint.token(3000)
        return ["lambda-microvms", f"lambda-microvms.authentication.{token}", "lambda-microvms.port.3000", *further]

    @pytest.mark.parametrize("order", [1, -1])
    def test_three_subprotocols_authenticate_in_any_order(self, endpoint, order):
        admitted = admit(endpoint, websocket(", ".join(self.offered(endpoint)[::order])))
        assert (admitted.port, admitted.upgrades, admitted.marker_offered) == (3000, True, True)
        assert not [name for name, _ in admitted.fields if name.lower() == "sec-websocket-protocol"]

    def test_they_may_stand_on_lines_of_their_own(self, endpoint):
        assert admit(endpoint, websocket(*self.offered(endpoint))).port == 3000

    def test_the_fourth_is_forwarded(self, endpoint):
        admitted = admit(endpoint, websocket(", ".join(self.offered(endpoint, "chat", "v2.chat"))))
        assert ("Sec-WebSocket-Protocol", "chat, v2.chat") in admitted.fields

    def test_without_the_marker_the_token_does_not_count(self, endpoint):
        asked = websocket(", ".join(self.offered(endpoint)[1:]))
        assert refusal(endpoint, asked) == (403, "Request missing authentication")

    def test_headers_authenticate_as_well(self, endpoint):
        admitted = admit(endpoint, websocket(fields=[auth(endpoint, 3000), (names.PROXY_PORT_HEADER, "3000")]))
        assert (admitted.port, admitted.marker_offered) == (3000, False)

    def test_subprotocols_of_a_plain_request_do_not_authenticate(self, endpoint):
        asked = request(("Sec-WebSocket-Protocol", ", ".join(self.offered(endpoint))))
        assert refusal(endpoint, asked) == (403, "Request missing authentication")

    @pytest.mark.parametrize("port", ["0", "x", "70000", ""])
    def test_a_bad_port_is_400(self, endpoint, port):
        offered = [*self.offered(endpoint)[:2], f"lambda-microvms.port.{port}"]
        assert refusal(endpoint, websocket(", ".join(offered)))[0] == 400


def test_a_refusal_is_plain_text_that_nobody_stores(endpoint):
    reply = admission.RefusedError(403, "no", kind="UNAUTHORIZED").reply()
    assert (reply.status, reply.body) == (403, b"no")
    assert dict(reply.fields) == {
        "Content-Type": "text/plain",
        "Cache-Control": "private, no-store",
        "x-aws-proxy-error": "UNAUTHORIZED",
    }


def test_what_is_not_there_has_no_body():
    reply = admission.unreachable("APP_CONNECT_FAILED")
    assert (reply.status, reply.body) == (502, b"")
    assert ("x-aws-proxy-error", "APP_CONNECT_FAILED") in reply.fields
