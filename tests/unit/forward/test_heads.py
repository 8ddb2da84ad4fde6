"""Heads between a client and the endpoint: what is changed, and that nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.forward import heads
from vmnest.wire import http1

ENDPOINT = "abc.lambda-microvm.us-east-1.on.aws"
TOKEN = (("X-aws-proxy-auth", "secret"),)
LOCALS = {3000: 8000, 5173: 5173, 80: 8080, 9090: 80}
RELAYED = heads.Context(3000, ENDPOINT, 8080, LOCALS, "127.0.0.1")
DIRECT = RELAYED._replace(agent_port=None)
BOTH = pytest.mark.parametrize("context", [RELAYED, DIRECT], ids=["relayed", "direct"])


def request_of(*lines, first="GET /a HTTP/1.1", host="localhost:8000"):
    named = () if host is None else (f"Host: {host}",)
    return http1.parse_request("\r\n".join([first, *named, *lines]).encode("latin-1"))


def upstream_of(*lines, context=RELAYED, **options):
    request = request_of(*lines, **options)
    return heads.to_upstream(request, http1.request_framing(request), context=context, token=TOKEN)


def response_of(*lines, status=200):
    return http1.parse_response("\r\n".join([f"HTTP/1.1 {status} Reason", *lines]).encode("latin-1"))


def client_of(*lines, status=200, request=None, context=RELAYED, keep=True, out=None):
    request = request or request_of()
    response = response_of(*lines, status=status)
    framing = http1.response_framing(response, method=request.method)
    return heads.to_client(response, request, framing=framing, out=out or framing, context=context, keep=keep)


def named(head, name):
    return http1.values(head.fields, name)


# -- the target --------------------------------------------------------------------------------------------------------


class TestNormalize:
    @pytest.mark.parametrize(
        "target", ["/", "//a//b", "/a/../%2F?x=[1]|{2}&y", "/\xc3\xa4", "/a#b", "/http://x/", "/*"]
    )
    def test_a_path_is_kept_as_it_is(self, target):
        request = request_of(first=f"GET {target} HTTP/1.1")
        assert heads.normalize(request) is request

    @pytest.mark.parametrize(
        ("first", "host", "target"),
        [
            ("GET http://localhost:8000/a?b HTTP/1.1", "localhost:8000", "/a?b"),
            ("GET HTTP://localhost/a//b HTTP/1.1", "localhost", "/a//b"),
            ("GET http://localhost HTTP/1.1", "localhost", "/"),
            ("GET http://localhost?q=/x HTTP/1.1", "localhost", "/?q=/x"),
            ("GET http://rebound.example/a HTTP/1.1", "rebound.example", "/a"),
            ("GET http://me@evil.example/ HTTP/1.1", "me@evil.example", "/"),
            ("OPTIONS http://localhost HTTP/1.1", "localhost", "*"),
            ("GET http:///a HTTP/1.1", "", "/a"),
        ],
    )
    def test_a_url_becomes_a_path_and_its_authority_is_the_host(self, first, host, target):
        request = heads.normalize(request_of("A: 1", first=first, host="other.example"))
        assert request.target == target
        assert request.fields == [("Host", host), ("A", "1")]

    def test_options_of_the_whole_server_passes(self):
        assert heads.normalize(request_of(first="OPTIONS * HTTP/1.1")).target == "*"

    @pytest.mark.parametrize(
        "first",
        [
            "CONNECT localhost:22 HTTP/1.1",
            "CONNECT http://localhost/ HTTP/1.1",
            "GET localhost:8000 HTTP/1.1",
            "GET * HTTP/1.1",
            "GET a HTTP/1.1",
            "GET https://localhost/ HTTP/1.1",
            "GET ftp://localhost/ HTTP/1.1",
            "GET ?a HTTP/1.1",
            "GET \\a HTTP/1.1",
        ],
    )
    def test_what_a_proxy_is_asked_is_refused(self, first):
        with pytest.raises(http1.MessageError) as caught:
            heads.normalize(request_of(first=first))
        assert caught.value.status == 400

    @pytest.mark.parametrize("line", ["Host: localhost:8000", "host: other", "HOST:"])
    def test_two_hosts_are_refused(self, line):
        with pytest.raises(http1.MessageError, match="more than one Host"):
            heads.normalize(request_of(line))

    def test_http_1_1_needs_a_host(self):
        with pytest.raises(http1.MessageError, match="no Host"):
            heads.normalize(request_of(host=None))

    def test_http_1_0_needs_none(self):
        request = request_of(first="GET / HTTP/1.0", host=None)
        assert heads.normalize(request) is request


# -- requests ----------------------------------------------------------------------------------------------------------


class TestToUpstream:
    def test_host_and_token_and_port_are_the_endpoints(self):
        fields = upstream_of(context=DIRECT).fields
        assert fields == [("Host", ENDPOINT), *TOKEN, ("X-aws-proxy-port", "3000")]

    def test_the_relay_is_told_the_port_and_the_original(self):
        fields = upstream_of().fields
        assert fields[1:] == [
            *(("X-Forwarded-Host", "localhost:8000"), ("X-Forwarded-Proto", "http")),
            *(("X-Forwarded-For", "127.0.0.1"), ("vmnest-relay-port", "3000")),
            *(*TOKEN, ("X-aws-proxy-port", "8080")),
        ]

    @BOTH
    def test_order_case_and_repetitions_are_kept(self, context):
        lines = ["B: 1", "a: 2", "COOKIE: x", "Cookie: y", "B: 3", "E: "]
        fields = upstream_of(*lines, context=context).fields
        assert [f"{name}: {value}" for name, value in fields[1:7]] == lines

    @BOTH
    def test_fields_of_the_connection_end_here(self, context):
        lines = ["Connection: keep-alive, X-Mine", "connection: Close", "Keep-Alive: 5", "Proxy-Connection: x",
                 "TE: trailers", "Upgrade: x", "x-mine: 1"]  # fmt: skip
        assert upstream_of(*lines, context=context).fields == upstream_of(context=context).fields

    @BOTH
    @pytest.mark.parametrize(
        "line",
        [
            *("X-Aws-Proxy-Auth: mine", "x-aws-proxy-PORT: 9000", "X-AWS-PROXY-other: 1", "x-aws-proxy-: 1"),
            *("Vmnest-Relay-Port: 9000", "vmnest-relay: relayed"),
        ],
    )
    def test_a_client_cannot_steer_the_platform(self, line, context):
        assert upstream_of(line, context=context).fields == upstream_of(context=context).fields

    @BOTH
    def test_nor_can_it_have_what_steers_it_removed(self, context):
        line = (
            "Connection: host, x-aws-proxy-auth, x-aws-proxy-port, vmnest-relay-port, x-forwarded-host, x-forwarded-for"
        )
        assert upstream_of(line, context=context).fields == upstream_of(context=context).fields

    @pytest.mark.parametrize(
        "line",
        ["Connection: content-length", "Connection: Transfer-Encoding", "Connection: close, content-length, x"],
    )
    @pytest.mark.parametrize("told", ["Content-Length: 5", "Transfer-Encoding: chunked"])
    def test_the_framing_is_always_told(self, line, told):
        request = upstream_of(line, told, first="POST /a HTTP/1.1")
        assert http1.request_framing(request) == http1.request_framing(request_of(told, first="POST /a HTTP/1.1"))

    def test_the_same_length_twice_becomes_one(self):
        assert named(upstream_of("Content-Length: 5", "content-length: 5"), "content-length") == ["5"]

    def test_odd_lengths_are_made_plain(self):
        assert named(upstream_of("Content-Length: 005"), "content-length") == ["5"]

    def test_a_request_without_a_body_tells_of_none(self):
        fields = upstream_of(first="POST /a HTTP/1.1").fields
        assert not {"content-length", "transfer-encoding"} & {name.lower() for name, _ in fields}

    @BOTH
    def test_a_lie_about_the_original_is_replaced_only_where_the_relay_tells_it(self, context):
        lies = ("X-Forwarded-Host: evil", "x-forwarded-proto: https")
        request = upstream_of(*lies, context=context)
        relays = context is RELAYED
        assert named(request, "x-forwarded-host") == ["localhost:8000" if relays else "evil"]
        assert named(request, "x-forwarded-proto") == ["http" if relays else "https"]

    def test_the_client_is_the_last_of_those_that_forwarded(self):
        request = upstream_of("X-Forwarded-For: 1.2.3.4, 5.6.7.8", "X-Other: 1", "x-forwarded-for: ::2")
        assert named(request, "x-forwarded-for") == ["1.2.3.4, 5.6.7.8, ::2, 127.0.0.1"]

    def test_origin_and_expect_pass(self):
        request = upstream_of("Origin: http://evil.example", "Expect: 100-continue")
        assert (named(request, "origin"), named(request, "expect")) == (["http://evil.example"], ["100-continue"])

    @BOTH
    def test_http_1_0_goes_on_as_1_1_and_expects_nothing(self, context):
        request = upstream_of("Expect: 100-continue", "Connection: keep-alive", first="POST /a HTTP/1.0", host=None,
                              context=context)  # fmt: skip
        assert request.minor == 1
        assert named(request, "host") == [ENDPOINT]
        assert not named(request, "expect") + named(request, "connection") + named(request, "x-forwarded-host")

    def test_the_endpoints_host_may_have_a_port(self):
        request = upstream_of(context=DIRECT._replace(authority="127.0.0.1:4431"))
        assert named(request, "host") == ["127.0.0.1:4431"]


class TestUpgrades:
    WEBSOCKET = ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k")

    @BOTH
    def test_a_websocket_is_asked_for_anew(self, context):
        request = upstream_of(*self.WEBSOCKET, context=context)
        assert named(request, "connection") == ["Upgrade"]
        assert named(request, "upgrade") == ["websocket"]
        assert named(request, "sec-websocket-key") == ["k"]

    @pytest.mark.parametrize(
        ("lines", "protocols"),
        [
            (WEBSOCKET, ["websocket"]),
            (("connection: UPGRADE", "UPGRADE: WebSocket"), ["WebSocket"]),
            (("Connection: Upgrade", "Upgrade: tcp"), ["tcp"]),
            (("Connection: Upgrade", "Upgrade: a/1, b", "Upgrade: c"), ["a/1", "b", "c"]),
            (("Connection: Upgrade", "Upgrade: h2c, websocket"), ["websocket"]),
            (("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAM"), []),
            (("Connection: Upgrade", "Upgrade: H2C"), []),
            (("Connection: Upgrade", "Upgrade: ,"), []),
            (("Connection: Upgrade",), []),
            (("Upgrade: websocket",), []),
            (("Connection: keep-alive", "Upgrade: websocket"), []),
        ],
    )
    def test_what_is_asked_for_is_what_goes_on(self, lines, protocols):
        assert heads.upgrades(request_of(*lines)) == protocols
        request = upstream_of(*lines)
        assert http1.elements(request.fields, "upgrade") == protocols
        assert named(request, "connection") == (["Upgrade"] if protocols else [])
        assert not named(request, "http2-settings")

    def test_http_1_0_has_no_upgrades(self):
        request = request_of(*self.WEBSOCKET, first="GET /a HTTP/1.0")
        assert heads.upgrades(request) == []

    @pytest.mark.parametrize(
        ("lines", "offered"),
        [
            (["Sec-WebSocket-Protocol: chat, Chat.v2"], ["chat, Chat.v2"]),
            (["Sec-WebSocket-Protocol: a", "sec-websocket-protocol: b,c"], ["a", "b,c"]),
            (["Sec-WebSocket-Protocol: lambda-microvms-like, a"], ["lambda-microvms-like, a"]),
            (["Sec-WebSocket-Protocol: lambda-microvms.port.9000, a, lambda-microvms"], ["a"]),
            (["Sec-WebSocket-Protocol: Lambda-MicroVMs.authentication.x,a", "Sec-WebSocket-Protocol: b"], ["a, b"]),
            (["Sec-WebSocket-Protocol: lambda-microvms"], []),
        ],
    )
    def test_subprotocols_pass_but_for_the_platforms(self, lines, offered):
        assert named(upstream_of(*self.WEBSOCKET, *lines), "sec-websocket-protocol") == offered

    def test_the_platforms_subprotocols_do_not_pass_without_an_upgrade_either(self):
        assert upstream_of("Sec-WebSocket-Protocol: lambda-microvms.port.9000").fields == upstream_of().fields


# -- answers -----------------------------------------------------------------------------------------------------------


class TestToClient:
    def test_order_case_and_repetitions_are_kept(self):
        lines = ["Set-Cookie: a=1", "x-b: 2", "set-cookie: b=2; Path=/", "X-B: 3", "SERVER: s", "Content-Length: 5"]
        assert [f"{name}: {value}" for name, value in client_of(*lines).fields] == lines

    def test_status_and_reason_are_kept(self):
        response = client_of("Content-Length: 0", status=418)
        assert (response.status, response.reason, response.minor) == (418, "Reason", 1)

    def test_fields_of_the_connection_and_of_the_platform_end_here(self):
        lines = ["Connection: keep-alive, x-mine", "Keep-Alive: timeout=5", "X-Mine: 1", "vmnest-relay: relayed",
                 "x-aws-proxy-error: NO", "X-Aws-Proxy-Else: 1", "Upgrade: h2c", "Content-Length: 0"]  # fmt: skip
        assert client_of(*lines).fields == [("Content-Length", "0")]

    @pytest.mark.parametrize(
        ("keep", "minor", "said"),
        [(True, 1, []), (False, 1, ["close"]), (True, 0, ["keep-alive"]), (False, 0, ["close"])],
    )
    def test_the_client_learns_whether_it_may_go_on(self, keep, minor, said):
        request = request_of(first=f"GET / HTTP/1.{minor}")
        assert named(client_of("Content-Length: 0", request=request, keep=keep), "connection") == said

    @pytest.mark.parametrize(
        ("came", "out", "fields"),
        [
            (["Content-Length: 5"], None, [("Content-Length", "5")]),
            (["Transfer-Encoding: chunked"], None, [("Transfer-Encoding", "chunked")]),
            ([], http1.Framing(http1.CHUNKED), [("Transfer-Encoding", "chunked")]),
            (["Transfer-Encoding: chunked"], http1.Framing(http1.UNTIL_CLOSE), []),
            (["Connection: content-length", "Content-Length: 5"], None, [("Content-Length", "5")]),
        ],
    )
    def test_the_framing_is_told_as_it_goes_on(self, came, out, fields):
        assert client_of(*came, out=out).fields == fields

    @pytest.mark.parametrize("lines", [["Content-Length: 5000"], ["Transfer-Encoding: chunked"], []])
    @pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
    def test_an_answer_without_a_body_tells_of_the_one_it_stands_for(self, method, status, lines):
        response = client_of(*lines, status=status, request=request_of(first=f"{method} / HTTP/1.1"))
        assert [f"{name}: {value}" for name, value in response.fields] == lines

    def test_http_1_0_is_never_told_of_a_coding(self):
        request = request_of(first="HEAD / HTTP/1.0")
        assert client_of("Transfer-Encoding: chunked", request=request, keep=False).fields == [("Connection", "close")]

    @pytest.mark.parametrize("line", ["Content-Length: 5", "Transfer-Encoding: chunked"])
    def test_204_has_no_body_whatever_it_says(self, line):
        assert client_of(line, status=204).fields == []

    @pytest.mark.parametrize("more", [[], ["Transfer-Encoding: chunked"]])
    def test_204_may_say_that_its_body_is_empty(self, more):
        request = request_of()
        response = response_of("Content-Length: 0", *more, status=204)
        got = heads.to_client(response, request, framing=http1.NO_BODY, out=http1.NO_BODY, context=RELAYED, keep=True)
        assert got.fields == [("Content-Length", "0")]

    def test_an_interim_answer_passes_without_a_framing(self):
        response = response_of("Link: </a.css>; rel=preload", "Content-Length: 5", "Connection: x", "X: 1", status=103)
        interim = heads.interim_to_client(response)
        assert (interim.status, interim.fields) == (103, [("Link", "</a.css>; rel=preload"), ("X", "1")])

    def test_the_switch_to_a_websocket_is_passed_on_as_it_is(self):
        lines = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: k", "Sec-WebSocket-Protocol: chat"]
        response = client_of(*lines, "Content-Length: 0", "vmnest-relay: relayed", status=101, keep=False)
        assert [f"{name}: {value}" for name, value in response.fields] == lines

    @pytest.mark.parametrize("protocol", ["lambda-microvms", "Lambda-MicroVMs", "lambda-microvms.port.3000"])
    def test_the_platforms_subprotocol_is_never_selected(self, protocol):
        response = client_of("Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Protocol: {protocol}",
                             status=101)  # fmt: skip
        assert response.fields == [("Upgrade", "websocket"), ("Connection", "Upgrade")]


def test_trailers_pass_but_for_those_that_steer():
    trailers = [("X-Sum", "1"), ("X-Aws-Proxy-Port", "22"), ("x-sum", "2"), ("VMnest-Relay-Port", "22"), ("TE", "x")]
    assert heads.passed_trailers(trailers) == [("X-Sum", "1"), ("x-sum", "2")]


class TestLocation:
    @BOTH
    @pytest.mark.parametrize(
        ("location", "mapped"),
        [
            ("http://localhost:3000/a?b#c", "http://localhost:8000/a?b#c"),
            ("http://localhost:3000", "http://localhost:8000"),
            ("http://localhost:3000?q=1", "http://localhost:8000?q=1"),
            ("HTTP://LocalHost:3000/", "http://localhost:8000/"),
            ("http://127.0.0.1:3000/", "http://localhost:8000/"),
            ("http://[::1]:3000/", "http://localhost:8000/"),
            ("http://0.0.0.0:5173/", "http://localhost:5173/"),
            ("http://localhost/", "http://localhost:8080/"),
            ("http://localhost:9090/x", "http://localhost/x"),
            (f"https://{ENDPOINT}/a", "http://localhost:8000/a"),
            (f"https://{ENDPOINT.upper()}:443/a", "http://localhost:8000/a"),
            (f"http://{ENDPOINT}/a", "http://localhost:8000/a"),
        ],
    )
    def test_a_url_of_the_servers_own_is_in_the_clients_words(self, location, mapped, context):
        assert named(client_of(f"Location: {location}", context=context), "location") == [mapped]
        assert named(client_of(f"content-location: {location}", context=context), "content-location") == [mapped]

    @BOTH
    @pytest.mark.parametrize(
        "location",
        [
            *("/a", "a", "", "?q", "#x", "//localhost:3000/a", "../b", "/redirect?to=http://localhost:3000/"),
            *("http://localhost:4000/", "https://localhost/", "http://example.com:3000/", "https://example.com/"),
            *("ws://localhost:3000/", "mailto:a@b", "http://me@localhost:3000/", "http:/localhost:3000/"),
            *("http://localhost:3000x/", "http://localhost:99999/", "http://", "://localhost:3000", "http:///a"),
            *(f"http://{ENDPOINT}:3000/", f"https://x.{ENDPOINT}/", "http://localhost.evil.com:3000/"),
            *("http://\xe4:3000/", "javascript:alert(1)"),
        ],
        ids=repr,
    )
    def test_any_other_is_left_as_it_is(self, location, context):
        assert named(client_of(f"Location: {location}", context=context), "location") == [location]

    @pytest.mark.parametrize(
        ("host", "mapped"),
        [
            ("127.0.0.1:8000", "http://127.0.0.1:8000/a"),
            ("[::1]:8000", "http://[::1]:8000/a"),
            ("devbox:8000", "http://devbox:8000/a"),
            ("localhost:9999", "http://localhost:9999/a"),  # an ssh tunnel to the forwarder
            ("localhost", "http://localhost:8000/a"),
            ("localhost:80", "http://localhost/a"),
        ],
    )
    def test_the_client_is_sent_to_where_it_came_to(self, host, mapped):
        request = request_of(host=host)
        assert named(client_of("Location: http://localhost:3000/a", request=request), "location") == [mapped]

    def test_another_forwarded_port_is_reached_by_its_own_number(self):
        request = request_of(host="devbox:9999")
        response = client_of("Location: http://localhost:5173/a", request=request)
        assert named(response, "location") == ["http://devbox:5173/a"]

    def test_a_client_of_http_1_0_is_sent_to_localhost(self):
        request = request_of(first="GET / HTTP/1.0", host=None)
        assert named(client_of("Location: http://localhost:3000/a", request=request), "location") == [
            "http://localhost:8000/a"
        ]

    @pytest.mark.parametrize(("context", "port"), [(RELAYED, 3000), (DIRECT, 8000)])
    def test_a_server_that_goes_by_the_original_host_is_taken_at_its_word(self, context, port):
        request = request_of(host="localhost:3000")
        crossed = context._replace(locals={3000: 8000, 8000: 3000}, remote=8000)
        response = client_of("Location: http://localhost:3000/a", request=request, context=crossed)
        assert named(response, "location") == [f"http://localhost:{port}/a"]

    def test_a_local_endpoint_has_a_port(self):
        context = DIRECT._replace(authority="127.0.0.1:43210")
        request = request_of(host="localhost:8000")
        for location, mapped in [
            ("http://127.0.0.1:43210/a", "http://localhost:8000/a"),
            ("https://127.0.0.1:43210/a", "http://localhost:8000/a"),
            ("https://127.0.0.1/a", "https://127.0.0.1/a"),
            ("http://127.0.0.1:3000/a", "http://localhost:8000/a"),
        ]:
            response = client_of(f"Location: {location}", request=request, context=context)
            assert named(response, "location") == [mapped]


class TestCookies:
    @BOTH
    @pytest.mark.parametrize(
        ("cookie", "mapped"),
        [
            ("a=1; Domain=localhost; Path=/", "a=1; Path=/"),
            ("a=1; path=/; DOMAIN = .localhost", "a=1; path=/"),
            (f"a=1; Domain={ENDPOINT}; Secure", "a=1; Secure"),
            (f"a=1;domain=.{ENDPOINT.upper()};Secure", "a=1;Secure"),
            ("a=1; Domain=us-east-1.on.aws", "a=1"),
            ("a=1; Domain=.on.aws ; HttpOnly", "a=1; HttpOnly"),
            ('a=1; Domain="localhost"; Path=/', "a=1; Path=/"),
            ("a=1; Domain=; Path=/", "a=1; Path=/"),
            ("a=1; Domain=localhost; Domain=localhost", "a=1"),
        ],
    )
    def test_a_domain_of_the_servers_own_is_taken_out(self, cookie, mapped, context):
        assert named(client_of(f"Set-Cookie: {cookie}", context=context), "set-cookie") == [mapped]

    @BOTH
    @pytest.mark.parametrize(
        "cookie",
        [
            *("a=1", "a=1; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=5", "__Host-a=1; Secure; Path=/"),
            *(
                "a=1; Domain=example.com",
                "a=1; Domain=n.aws",
                "a=1; Domain=xlocalhost",
                "domain=localhost",
                "a=Domain=x",
            ),
            *(
                "a=1; NotDomain=localhost",
                "a=1; Domain",
                "a=1; Domain=localhost.evil.com",
                "a=1; Path=/domain=localhost",
            ),
            *("a=\xe4; Expires=Wed, 01 Jan 2031 00:00:00 GMT", "", ";", "a=b;;"),
        ],
        ids=repr,
    )
    def test_all_else_is_left_as_it_is(self, cookie, context):
        assert named(client_of(f"Set-Cookie: {cookie}", context=context), "set-cookie") == [cookie]


# -- made ones ---------------------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(
    [
        *("Connection", "connection", "Keep-Alive", "TE", "Upgrade", "Content-Length", "Transfer-Encoding", "Trailer"),
        *("X-Aws-Proxy-Auth", "x-aws-proxy-port", "vmnest-relay-port", "Vmnest-Relay", "X-Forwarded-For", "Origin"),
        *("X-Forwarded-Host", "Sec-WebSocket-Protocol", "Set-Cookie", "Location", "Expect", "X-A", "x-a", "Cookie"),
    ]
)
_WORDS = st.sampled_from(
    [
        *("", "close", "keep-alive", "Upgrade", "upgrade, content-length", "x-aws-proxy-auth", "host", "chunked", "5"),
        *("0", "websocket", "h2c", "lambda-microvms, a", "lambda-microvms.port.22", "http://localhost:3000/", "x-a"),
        *("a=1; Domain=localhost", "100-continue", "trailers", "x-forwarded-for, set-cookie", "\xe4;\t\"',"),
    ]
)
_VALUES = _WORDS | st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=12
)
_FIELDS = st.lists(st.tuples(_NAMES, _VALUES.map(lambda value: value.strip(" \t"))), max_size=8)
_OURS = {"host", "x-aws-proxy-auth", "x-aws-proxy-port", "vmnest-relay-port", "content-length", "transfer-encoding"}
_OURS |= {"x-forwarded-host", "x-forwarded-proto", "x-forwarded-for", "upgrade", "connection", "sec-websocket-protocol"}


def framing_of(read, head, **options):
    try:
        return read(head, **options)
    except http1.MessageError:
        return None


@BOTH
@given(fields=_FIELDS, method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS"]), minor=st.sampled_from([0, 1]))
def test_every_request_goes_on_with_the_same_framing_and_nobodys_steering(context, fields, method, minor):
    request = http1.Request(method, "/a", [("Host", "localhost:8000"), *fields], minor)
    framing = framing_of(http1.request_framing, request)
    if framing is None:
        return  # refused
    sent = http1.serialize_request(heads.to_upstream(request, framing, context=context, token=TOKEN))
    got = http1.parse_request(sent.removesuffix(b"\r\n\r\n"))
    assert (got.method, got.target, got.minor) == (method, "/a", 1)
    assert http1.request_framing(got) == framing
    assert named(got, "host") == [ENDPOINT]
    assert named(got, "x-aws-proxy-auth") == ["secret"]
    assert named(got, "x-aws-proxy-port") == ["8080" if context is RELAYED else "3000"]
    assert named(got, "vmnest-relay-port") == (["3000"] if context is RELAYED else [])
    assert named(got, "connection") in ([], ["Upgrade"])
    assert bool(named(got, "upgrade")) == bool(named(got, "connection"))
    assert "h2c" not in http1.elements(got.fields, "upgrade")
    assert not any("lambda-microvms" in value for value in named(got, "sec-websocket-protocol"))
    rest = [field for field in got.fields if field[0].lower() not in _OURS]
    assert is_part_of(rest, fields)


@BOTH
@given(
    fields=_FIELDS, status=st.sampled_from([101, 200, 204, 302, 304, 500]), keep=st.booleans(),
    first=st.sampled_from(["GET / HTTP/1.1", "HEAD / HTTP/1.1", "GET / HTTP/1.0"]),
)  # fmt: skip
def test_every_answer_goes_on_with_the_same_framing_and_nothing_of_the_platforms(context, fields, status, keep, first):
    request = request_of(first=first)
    response = http1.Response(status, "OK", fields)
    framing = framing_of(http1.response_framing, response, method=request.method)
    if framing is None:
        return  # it is no answer
    sent = http1.serialize_response(
        heads.to_client(response, request, framing=framing, out=framing, context=context, keep=keep)
    )
    got = http1.parse_response(sent.removesuffix(b"\r\n\r\n"))
    assert http1.response_framing(got, method=request.method) == framing
    assert got.status == status
    told = {name.lower() for name, _ in got.fields}
    assert not any(name.startswith(("x-aws-proxy-", "vmnest-")) for name in told)
    if status != 101:
        assert http1.keeps_alive(got) == keep or request.minor == 0
        assert "upgrade" not in told
    changed = {"set-cookie", "location", "connection", "content-length", "transfer-encoding", "sec-websocket-protocol"}
    assert is_part_of([field for field in got.fields if field[0].lower() not in changed], fields)


def is_part_of(some, all_of_them):
    """These, in this order, are among those."""
    rest = iter(all_of_them)
    return all(any(each == other for other in rest) for each in some)
