"""Whose requests a listener takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.forward import hosts
from vmnest.forward.hosts import Place


class TestParse:
    @pytest.mark.parametrize(
        ("authority", "place"),
        [
            ("localhost", ("localhost", None)),
            ("LocalHost:8000", ("localhost", 8000)),
            ("localhost.:8000", ("localhost", 8000)),
            ("localhost:", ("localhost", None)),
            ("127.0.0.1:80", ("127.0.0.1", 80)),
            ("[::1]:8000", ("[::1]", 8000)),
            ("[::FFFF:127.0.0.1]", ("[::ffff:127.0.0.1]", None)),
            ("my_box-1.example:65535", ("my_box-1.example", 65535)),
        ],
    )
    def test_it_has_a_name_and_perhaps_a_port(self, authority, place):
        assert hosts.parse(authority) == Place(*place)

    @pytest.mark.parametrize(
        "authority",
        [
            *("", ".", ":80", "a b", "me@localhost", "localhost:x", "localhost:123456", "localhost:65536", "::1"),
            *("[::1", "[]", "[::1]x", "[localhost]", "localhost\n", "localhost/", "a,b", "h\xe4st", "local%68ost"),
            *("localhost:-1", "localhost:80:80", "localhost, localhost", '"localhost"', "(localhost)", "local\tost"),
        ],
        ids=repr,
    )
    def test_what_two_parties_could_read_in_two_ways_is_none(self, authority):
        assert hosts.parse(authority) is None


class TestIsAllowed:
    @pytest.mark.parametrize(
        "host",
        [
            *("localhost", "localhost:8000", "LOCALHOST", "localhost.", "app.localhost:3000", "a.b.localhost"),
            *("127.0.0.1", "127.0.0.1:8000", "127.1", "0.0.0.0", "192.168.1.20:8000", "2130706433", "[::1]:8000"),
            *("[fe80::1]", "[::ffff:10.0.0.1]:80", "devbox", "devbox:8000", "my_box"),
        ],
    )
    def test_names_that_nobody_else_can_have_are_served(self, host):
        assert hosts.is_allowed(host)

    @pytest.mark.parametrize(
        "host",
        [
            *(
                "rebound.example",
                "rebound.example:8000",
                "localhost.rebound.example",
                "127.0.0.1.nip.io",
                "localhost.x",
            ),
            *(
                "evil.com.",
                "xlocalhost.com",
                "a.localhost.evil.com",
                "1.2.3.4.5x",
                "a.b",
                "app.local",
                "x.notlocalhost",
            ),
            *("", ".", "localhost@evil.com", "evil.com#localhost", "evil.com\\.localhost", "evil.com/.localhost"),
            *("[::1].evil.com", "localhost, evil.com", "[evil.com]"),
        ],
        ids=repr,
    )
    def test_names_that_may_lead_here_by_another_hand_are_not(self, host):
        assert not hosts.is_allowed(host)

    def test_a_name_that_was_allowed_is_served_on_any_port_and_in_any_case(self):
        allowed = {hosts.parse_allowed("DevBox.Example.com.")}
        assert hosts.is_allowed("devbox.example.COM:3000", allowed=allowed)
        assert not hosts.is_allowed("other.example.com", allowed=allowed)
        assert not hosts.is_allowed("x.devbox.example.com", allowed=allowed)

    @pytest.mark.parametrize("name", ["", "http://devbox.example", "devbox.example:80", "*.example", "a b", "a\n"])
    def test_what_is_no_name_cannot_be_allowed(self, name):
        with pytest.raises(errors.UsageError, match="not a name of this machine"):
            hosts.parse_allowed(name)

    @given(st.text(st.characters(max_codepoint=0xFF), max_size=20), st.sampled_from([".evil.example", ".com", ".io"]))
    def test_nothing_makes_a_name_of_a_foreign_domain_a_local_one(self, head, domain):
        assert not hosts.is_allowed(head + domain)


class TestIsSameOrigin:
    @pytest.mark.parametrize(
        ("origin", "host"),
        [
            ("http://localhost:8000", "localhost:8000"),
            ("http://localhost", "localhost"),
            ("http://localhost", "localhost:80"),
            ("HTTP://LocalHost:8000", "localhost:8000"),
            ("http://[::1]:8000", "[::1]:8000"),
        ],
    )
    def test_pages_of_this_host_are_its_own(self, origin, host):
        assert hosts.is_same_origin(origin, host)

    @pytest.mark.parametrize(
        ("origin", "host"),
        [
            ("http://evil.example", "localhost:8000"),
            ("http://localhost:3000", "localhost:8000"),
            ("http://localhost", "localhost:8000"),
            ("http://127.0.0.1:8000", "localhost:8000"),
            ("https://localhost:8000", "localhost:8000"),
            ("null", "localhost:8000"),
            ("", ""),
            ("null", ""),
            ("http://", ""),
            ("http://a b", "a b"),
            ("localhost:8000", "localhost:8000"),
            ("http://localhost:8000/", "localhost:8000"),
            ("http://localhost:8000 http://evil.example", "localhost:8000"),
        ],
    )
    def test_all_others_are_not(self, origin, host):
        assert not hosts.is_same_origin(origin, host)
