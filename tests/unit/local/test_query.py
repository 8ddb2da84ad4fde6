"""The query protocol: forms in, XML out."""

from datetime import datetime, timezone
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.account import KEYS, Answer, signed
from vmnest.aws.credentials import Credentials, Secret
from vmnest.local import callers, faults, query
from vmnest.local.query import Action, Parameter

NAME = Parameter("Name", is_required=True, pattern=r"[a-z]+", least=2, most=4)
SIZE = Parameter("Size", least=1, most=9, is_number=True)


@pytest.fixture
def ask(fake_clock):
    def perform(call):
        if call["Name"] == "fail":
            raise faults.Fault("<no>", error_type="NoSuch", status=404)
        if call["Name"] == "bug":
            raise ZeroDivisionError
        if call["Name"] == "disk":
            raise OSError(28, "full")
        return [("Name", call["Name"]), ("Size", call.number("Size", 5))]

    actions = {"Act": Action((NAME, SIZE), perform), "Quiet": Action((), lambda call: None)}
    service = query.Service(
        "iam", namespace="http://n/", known=callers.Callers(KEYS, clock=fake_clock), actions=actions
    )
    when = datetime.fromtimestamp(fake_clock.time(), timezone.utc)

    def one(form, *, target="/", method="POST", **options):
        body = (form if isinstance(form, str) else urlencode(form)).encode("latin-1")
        return Answer(service.answer(signed(method, target, body, service="iam", when=when, **options), body))

    return one


def told(answer):
    error = answer.xml.find("Error")
    return answer.status, error.value("Code"), error.value("Message")


def test_a_result_and_the_requests_id(ask):
    answer = ask({"Action": "Act", "Version": "x", "Name": "abc"})
    assert (answer.status, answer.xml.name) == (200, "ActResponse")
    assert answer.texts("ActResult", "Name") == ["abc"]
    assert answer.texts("ActResult", "Size") == ["5"]
    assert answer.texts("ResponseMetadata", "RequestId") == [answer.fields["x-amzn-requestid"]]


def test_an_action_without_a_result_has_none(ask):
    answer = ask({"Action": "Quiet"})
    assert [child.name for child in answer.xml.children] == ["ResponseMetadata"]


def test_the_form_may_stand_in_the_target(ask):
    assert ask("", target="/?Action=Act&Name=abc", method="GET").status == 200


def test_all_that_is_wrong_is_said_at_once(ask):
    status, code, message = told(ask({"Action": "Act", "Name": "A" * 5, "Size": "10"}))
    assert (status, code) == (400, "ValidationError")
    assert message == (
        "3 validation errors detected: "
        "Value 'AAAAA' at 'name' failed to satisfy constraint: Member must have length less than or equal to 4; "
        "Value 'AAAAA' at 'name' failed to satisfy constraint: "
        "Member must satisfy regular expression pattern: [a-z]+; "
        "Value '10' at 'size' failed to satisfy constraint: Member must have value less than or equal to 9"
    )
    assert told(ask({"Action": "Act"}))[2] == (
        "1 validation error detected: Value null at 'name' failed to satisfy constraint: Member must not be null"
    )
    assert "Member must be a number" in told(ask({"Action": "Act", "Name": "abc", "Size": "x"}))[2]


def test_an_error_is_the_actions(ask):
    assert told(ask({"Action": "Act", "Name": "fail"})) == (404, "NoSuch", "<no>")


def test_a_failure_of_ours_is_a_500(ask, caplog):
    assert told(ask({"Action": "Act", "Name": "bug"}))[:2] == (500, "ServiceFailure")
    assert "ZeroDivisionError" in caplog.text
    assert "full" in told(ask({"Action": "Act", "Name": "disk"}))[2]


@pytest.mark.parametrize(("form", "target"), [({}, "/"), ({"Action": "Other"}, "/"), ({"Action": "Act"}, "/x")])
def test_what_is_not_here_names_what_is(ask, form, target):
    status, code, message = told(ask(form, target=target))
    assert (status, code) == (400, "InvalidAction")
    assert message.endswith("it has: Act, Quiet.")


def test_a_signature_that_does_not_hold_is_403(ask):
    answer = ask({"Action": "Quiet"}, credentials=Credentials("XX", Secret("SK")))
    assert told(answer)[:2] == (403, "InvalidClientTokenId")


def test_a_form_must_be_text_and_not_endless(ask):
    assert told(ask("Action=%ff"))[1] == "ValidationError"
    assert told(ask("&".join(f"a{number}=" for number in range(1001))))[1] == "ValidationError"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_comes_through_a_form(text):
    form = query._parse_form("Action=x&Text=" + quote(text, safe=""))
    assert query.Call(form)["Text"] == text


def test_lists_are_read_in_the_order_of_their_numbers():
    call = query.Call(
        {
            "T.member.10.Key": "b",
            "T.member.10.Value": "2",
            "T.member.2.Key": "a",
            "K.member.1": "x",
            "K.member.x": "y",
            "K.member.99999": "z",
        }
    )
    assert call.pairs("T", "Key", "Value") == [("a", ""), ("b", "2")]
    assert call.texts("K") == ["x"]
    assert call.texts("None") == []


def test_pages_go_on_behind_their_last_item():
    items = ["a", "b", "c"]
    first, more = query.page(items, query.Call({"MaxItems": "2"}), key=str)
    assert (first, more[0]) == (["a", "b"], ("IsTruncated", True))
    rest = query.page(["a", "bb", "c"], query.Call({"Marker": more[1][1]}), key=str)
    assert rest == (["bb", "c"], [("IsTruncated", False)])
    for marker in ("x", "é", "eA=="):
        with pytest.raises(faults.Fault, match="Invalid Marker"):
            query.page(items, query.Call({"Marker": marker}), key=str)
