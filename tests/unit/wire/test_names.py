"""Names that travel: those that follow from others, and the shapes of ARNs that AWS documents."""

from __future__ import annotations

import re

from vmnest.wire import names


def test_the_arn_of_an_image_has_a_colon_before_its_name() -> None:
    arn = names.image_arn(region="eu-west-1", account="123456789012", name="tools")
    assert arn == "arn:aws:lambda:eu-west-1:123456789012:microvm-image:tools"


def test_the_arn_of_a_managed_connector_belongs_to_aws() -> None:
    arn = names.managed_connector_arn(region="eu-west-1", name="INTERNET_EGRESS")
    assert arn == "arn:aws:lambda:eu-west-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS"


def test_every_proxy_header_has_the_reserved_prefix() -> None:
    for header in (names.PROXY_AUTH_HEADER, names.PROXY_PORT_HEADER, names.PROXY_ERROR_HEADER):
        assert header.lower().startswith(names.PROXY_HEADER_PREFIX)


def test_the_subprotocols_are_tokens_of_http() -> None:
    for prefix in (names.SUBPROTOCOL_AUTH_PREFIX, names.SUBPROTOCOL_PORT_PREFIX):
        assert prefix.startswith(names.SUBPROTOCOL_MARKER + ".")
        assert re.fullmatch(r"[A-Za-z0-9.-]+", prefix)


def test_the_states_that_end_a_microvm_are_states() -> None:
    assert set(names.ENDED_STATES) < set(names.STATES)
    assert len(set(names.STATES)) == len(names.STATES)


def test_the_connectors_that_admit_no_requests_are_ingress_connectors() -> None:
    assert set(names.CONNECTORS_WITHOUT_HTTP) < set(names.INGRESS_CONNECTORS)
    assert not set(names.INGRESS_CONNECTORS) & set(names.EGRESS_CONNECTORS)
