"""Which ports are forwarded to which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.forward import ports
from vmnest.forward.ports import Route

HOOK_PORT = 9000
PORT = st.integers(1, 65535)


def plan(*specs, **options):
    return ports.plan(specs, hook_port=HOOK_PORT, **options)


class TestParseRoute:
    @pytest.mark.parametrize(
        ("spec", "routes"),
        [
            (8000, [(8000, 8000)]),
            ("8000", [(8000, 8000)]),
            ("8000:3000", [(8000, 3000)]),
            ("8000:0", [(8000, 0)]),
            ("1:65535", [(1, 65535)]),
            ("3000-3002", [(3000, 3000), (3001, 3001), (3002, 3002)]),
            ("3000-3001:4000-4001", [(3000, 4000), (3001, 4001)]),
            ("3000-3001:0", [(3000, 0), (3001, 0)]),
            ("3000-3000", [(3000, 3000)]),
            ("3000-3000:4000", [(3000, 4000)]),
        ],
    )
    def test_every_form_is_understood(self, spec, routes):
        assert ports.parse_route(spec) == [Route(*each) for each in routes]

    @pytest.mark.parametrize(
        "spec",
        [
            *("", " ", "a", "8000/", "abc", "8080\n", " 8080", "8080 ", "+80", "-1", "8_0", "1.5", "8000:", ":8000"),
            *("8000:3000:1", "http://x:80", "٨٠", "²", "100000", "8000,9000", "3000-", "-3000", "3000--3001", "0x50"),
            *(-1, True, False, None, 8000.0, b"8000"),
        ],
        ids=repr,
    )
    def test_what_is_no_port_is_refused_with_the_forms_that_there_are(self, spec):
        with pytest.raises(errors.UsageError) as caught:
            ports.parse_route(spec)
        assert "not a port to forward" in caught.value.message
        assert caught.value.hint is not None

    @pytest.mark.parametrize(
        "spec", [0, 65536, 70000, "0", "0:3000", "65536", "8000:65536", "3001-3000", "0-10", "3000-3001:0-1"]
    )
    def test_numbers_that_are_no_ports_are_refused(self, spec):
        with pytest.raises(errors.UsageError) as caught:
            ports.parse_route(spec)
        assert "1 to 65535" in (caught.value.hint or "")

    def test_ranges_of_different_lengths_are_refused(self):
        with pytest.raises(errors.UsageError, match="differ in length"):
            ports.parse_route("3000-3005:4000-4004")

    def test_a_range_does_not_lead_to_one_port(self):
        with pytest.raises(errors.UsageError, match="differ in length"):
            ports.parse_route("3000-3005:4000")

    def test_a_range_has_its_limit(self):
        assert len(ports.parse_route(f"1000-{999 + ports.MAX_ROUTES}")) == ports.MAX_ROUTES
        with pytest.raises(errors.UsageError, match=f"more than {ports.MAX_ROUTES}"):
            ports.parse_route(f"1000-{1000 + ports.MAX_ROUTES}")

    @given(PORT, PORT, st.integers(0, 20))
    def test_a_range_leads_to_a_range_number_by_number(self, remote, local, more):
        remote, local = min(remote, 65535 - more), min(local, 65535 - more)
        routes = ports.parse_route(f"{remote}-{remote + more}:{local}-{local + more}")
        assert routes == [Route(remote + step, local + step) for step in range(more + 1)]

    @given(st.text(max_size=12))
    def test_any_text_is_ports_or_a_usage_error(self, text):
        try:
            routes = ports.parse_route(text)
        except errors.UsageError:
            return
        assert all(1 <= route.remote <= 65535 and 0 <= route.local <= 65535 for route in routes)
        assert text.isascii()


class TestPlan:
    def test_without_a_local_port_it_is_the_same_number(self):
        assert plan(8000, "9090:0") == [Route(8000, 8000), Route(9090, 0)]

    @pytest.mark.parametrize("local", [0, 1, 3000, 65535])
    def test_a_local_port_is_that_of_the_one_route(self, local):
        assert plan(8000, local_port=local) == [Route(8000, local)]

    @pytest.mark.parametrize("local", [-1, 65536, True, "3000", 1.0], ids=repr)
    def test_a_local_port_that_is_none_is_refused(self, local):
        with pytest.raises(errors.UsageError, match="not a local port"):
            plan(8000, local_port=local)

    @pytest.mark.parametrize("specs", [(8000, 9090), ("3000-3001",)])
    def test_one_local_port_for_several_routes_is_refused(self, specs):
        with pytest.raises(errors.UsageError, match="one local port for several"):
            plan(*specs, local_port=3000)

    def test_two_local_ports_for_one_route_are_refused(self):
        with pytest.raises(errors.UsageError, match="names its local port"):
            plan("8000:3000", local_port=4000)

    def test_nothing_to_forward_is_refused(self):
        with pytest.raises(errors.UsageError, match="no port") as caught:
            plan()
        assert caught.value.hint == "Name the port in the sandbox, such as 8000."  # Python and MCP know no options

    @pytest.mark.parametrize("spec", [HOOK_PORT, "9000", "09000", "9000:3000", "8990-9010", "9000-9000:1-1"])
    def test_the_hook_port_is_refused_inside_ranges_too(self, spec):
        with pytest.raises(errors.UsageError, match="port 9000 is the platform's own"):
            plan(spec)

    def test_the_hook_port_is_what_the_setting_says(self):
        assert ports.plan([9000], hook_port=9001) == [Route(9000, 9000)]
        with pytest.raises(errors.UsageError, match="port 9001"):
            ports.plan([9001], hook_port=9001)

    def test_the_number_of_the_hook_port_is_free_on_this_machine(self):
        assert plan("8000:9000") == [Route(8000, 9000)]

    @pytest.mark.parametrize("specs", [(8000, 8000), (8000, "8000:0"), ("8000-8010", "8005:1")])
    def test_a_port_that_is_named_twice_is_refused(self, specs):
        with pytest.raises(errors.UsageError, match=r"port 800[05] is named twice"):
            plan(*specs)

    @pytest.mark.parametrize("specs", [("8000:3000", "8001:3000"), (3000, "8001:3000")])
    def test_a_local_port_that_is_named_twice_is_refused(self, specs):
        with pytest.raises(errors.UsageError, match="local port 3000 is named twice"):
            plan(*specs)

    def test_any_free_port_may_be_asked_for_many_times(self):
        assert plan("8000:0", "8001:0") == [Route(8000, 0), Route(8001, 0)]

    def test_all_ranges_together_have_a_limit(self):
        with pytest.raises(errors.UsageError, match="more than"):
            plan(f"1000-{999 + ports.MAX_ROUTES}", 20000)
