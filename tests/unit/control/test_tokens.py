"""Tokens are for the ports that were asked for, are printed nowhere, and headers that break a request are refused."""

import json

import pytest

from tests.support.control import Controls
from tests.support.peers import json_answer
from vmnest import errors
from vmnest.control import tokens

JWE = "eyJhbGciOiJkaXIi..aaaa.bbbb-_.cccc"


def test_a_token_has_the_headers_of_the_answer_and_no_others(controls: Controls):
    made = controls(json_answer(200, {"authToken": {"X-aws-proxy-auth": JWE, "X-Other": "v"}}))
    token = tokens.mint(
        made.service, "microvm-1", ports=(8080, 3000), minutes=5, deadline=made.deadline(), clock=made.clock
    )
    assert token.headers == (("X-aws-proxy-auth", JWE), ("X-Other", "v"))
    assert token.value.reveal() == JWE
    assert token.ports == (8080, 3000)
    assert token.expires_at == made.clock.time() + 300
    (request,) = made.peer.requests
    assert request.target == "/2025-09-09/microvms/microvm-1/auth-token"
    assert json.loads(request.body) == {
        "expirationInMinutes": 5,
        "allowedPorts": [{"port": 8080}, {"port": 3000}],
    }


def test_a_token_does_not_print(controls: Controls):
    made = controls(json_answer(200, {"authToken": {"X-aws-proxy-auth": JWE}}))
    token = made.control.mint_token("microvm-1", [8080], deadline=made.deadline())
    assert "eyJ" not in f"{token} {token!r} {token.value}"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-aws-proxy-auth": ""},
        {"X-aws-proxy-auth": "a\r\nHost: evil"},
        {"X-aws-proxy-auth": "a b"},
        {"X-aws-proxy-auth": "\u00e9"},
        {"X-aws-proxy-auth": "a" * 8001},
        {"X-aws-proxy-auth\r\n": "a"},
        {"X aws": "a"},
        {"X:": "a"},
        {"": "a"},
    ],
)
def test_headers_that_cannot_be_sent_are_refused_without_their_value(controls: Controls, headers):
    made = controls(json_answer(200, {"authToken": headers}))
    with pytest.raises(errors.AnswerInvalidError) as caught:
        made.control.mint_token("microvm-1", [8080], deadline=made.deadline())
    assert "evil" not in caught.value.message


@pytest.mark.parametrize(("ports", "minutes"), [([0], 60), ([65536], 60), ([], 60), ([8080], 0)])
def test_what_the_service_would_refuse_is_not_sent(controls: Controls, ports, minutes):
    made = controls()
    with pytest.raises(errors.RequestInvalidError):
        made.control.mint_token("microvm-1", ports, minutes=minutes, deadline=made.deadline())
    assert made.peer.requests == []


def test_a_token_for_an_unknown_microvm_says_so(controls: Controls):
    made = controls(json_answer(404, {"message": "MicroVM not found: x"}))
    with pytest.raises(errors.MicroVMNotFoundError):
        made.control.mint_token("x", [8080], deadline=made.deadline())


def test_a_token_for_the_shell_is_asked_for_without_ports(controls: Controls):
    made = controls(json_answer(200, {"authToken": {"X-aws-proxy-auth": JWE}}))
    token = tokens.mint_shell(made.service, "microvm-1", minutes=5, deadline=made.deadline(), clock=made.clock)
    assert (token.value.reveal(), token.ports, token.expires_at) == (JWE, (), made.clock.time() + 300)
    (request,) = made.peer.requests
    assert request.target == "/2025-09-09/microvms/microvm-1/shell-auth-token"
    assert json.loads(request.body) == {"expirationInMinutes": 5}


def test_a_microvm_without_the_connector_for_shells_is_told_apart(controls: Controls):
    answer = {"message": "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM."}
    made = controls(json_answer(400, answer, headers={"x-amzn-errortype": "ValidationException"}))
    with pytest.raises(errors.UnsupportedError, match="SHELL_INGRESS") as caught:
        made.control.mint_shell_token("microvm-1", deadline=made.deadline())
    assert "--ingress SHELL_INGRESS" in str(caught.value.hint)


def test_another_refusal_of_a_token_for_the_shell_stays_what_it_is(controls: Controls):
    answer = {"message": "The MicroVM is in the wrong state"}
    made = controls(json_answer(400, answer, headers={"x-amzn-errortype": "ValidationException"}))
    with pytest.raises(errors.ValidationError):
        made.control.mint_shell_token("microvm-1", deadline=made.deadline())
