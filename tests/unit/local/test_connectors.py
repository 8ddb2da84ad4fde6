"""Network connectors at RunMicrovm."""

import pytest

from vmnest.local import connectors, faults

HTTP, ALL, SHELL, NONE = (
    connectors.managed(name) for name in ("HTTP_INGRESS", "ALL_INGRESS", "SHELL_INGRESS", "NO_INGRESS")
)
INTERNET = connectors.managed("INTERNET_EGRESS")


def test_the_defaults_are_the_services():
    assert connectors.check_ingress([]) == (HTTP,)
    assert connectors.check_egress([]) == (INTERNET,)


@pytest.mark.parametrize(
    ("ingress", "http", "shell"),
    [
        ([HTTP], True, False),
        ([ALL], True, False),
        ([SHELL], False, True),
        ([HTTP, SHELL], True, True),
        ([NONE], False, False),
    ],
)
def test_they_say_what_may_come_in(ingress, http, shell):
    checked = connectors.check_ingress(ingress)
    assert connectors.admits_http(checked) is http
    assert connectors.admits_shell(checked) is shell


@pytest.mark.parametrize(
    ("arns", "message"),
    [
        (["HTTP_INGRESS"], "Malformed network connector ARN: HTTP_INGRESS"),
        ([connectors.managed("X")], "Unrecognized managed network connector ARN: .*:X"),
        ([INTERNET], "Unrecognized managed network connector ARN"),
        ([ALL, SHELL], "ALL_INGRESS cannot be combined"),
        (["arn:aws:lambda:us-east-1:000000000000:network-connector:nc-1"], "Network connector not found for: arn"),
    ],
)
def test_other_ingress_is_refused_in_the_services_words(arns, message):
    with pytest.raises(faults.Fault, match=message):
        connectors.check_ingress(arns)


@pytest.mark.parametrize(
    ("arns", "message"),
    [
        ([INTERNET, INTERNET], "Only one egress network connector can be provided"),
        ([connectors.managed("NO_EGRESS")], "Unrecognized managed network connector ARN: .*:NO_EGRESS"),
    ],
)
def test_other_egress_is_refused_in_the_services_words(arns, message):
    with pytest.raises(faults.Fault, match=message):
        connectors.check_egress(arns)


OWN = "arn:aws:lambda:us-east-1:000000000000:network-connector:nc-1"


def test_an_active_connector_of_the_account_is_egress():
    assert connectors.check_egress([OWN], state_of={OWN: "ACTIVE"}.get) == (OWN,)


@pytest.mark.parametrize("state", ["PENDING", "DELETING"])
def test_one_in_another_state_is_not(state):
    with pytest.raises(faults.Fault, match=f"its state is {state}"):
        connectors.check_egress([OWN], state_of={OWN: state}.get)


def test_one_that_is_not_there_is_not_found():
    with pytest.raises(faults.Fault, match="Network connector not found for: ") as caught:
        connectors.check_egress([OWN], state_of={}.get)
    assert caught.value.status == 404
