"""Schemas from signatures, and arguments checked by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.mcp.schema import build_schema, check_arguments, parse_doc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal


def sample(
    *,
    name: str,
    args: list[str] | None = None,
    env: dict[str, str] | None = None,
    encoding: Literal["text", "base64"] = "text",
    ports: list[int] | None = None,
    timeout: float | None = None,
    count: int = 5,
    flag: bool = False,
    call: object,
) -> dict[str, object]:
    """Do something
    with a sandbox.

    Use it often: it is cheap.

    Args:
        name: The sandbox.
        args: Words, which may
            go on: in a second line.
        env: Variables.
        encoding: How it is written.
        ports: Ports.
        timeout: Seconds.
        count: How often.
        flag: Whether.

    Returns:
        What came
        of it.

    Raises:
        ValueError: never.
    """
    raise NotImplementedError


SCHEMA = build_schema(sample, without=("call",))


def check(**arguments: object) -> dict[str, object]:
    return check_arguments(SCHEMA, {"name": "web", **arguments})


def refusal(**arguments: object) -> str:
    with pytest.raises(errors.UsageError) as caught:
        check(**arguments)
    return caught.value.message


def test_a_schema_says_what_the_signature_and_the_docstring_say():
    assert SCHEMA == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The sandbox."},
            "args": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Words, which may go on: in a second line.",
            },
            "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables."},
            "encoding": {
                "type": "string",
                "enum": ["text", "base64"],
                "default": "text",
                "description": "How it is written.",
            },
            "ports": {"type": "array", "items": {"type": "integer"}, "description": "Ports."},
            "timeout": {"type": "number", "description": "Seconds."},
            "count": {"type": "integer", "default": 5, "description": "How often."},
            "flag": {"type": "boolean", "description": "Whether."},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_a_docstring_has_a_text_and_says_what_comes_back():
    doc = parse_doc(sample.__doc__ or "")
    assert doc.text == "Do something with a sandbox.\n\nUse it often: it is cheap."
    assert doc.returns == "What came of it."
    assert parse_doc("One line.").arguments == {}


def test_without_parameters_nothing_is_required():
    def nothing() -> dict[str, object]:
        """Nothing."""
        return {}

    assert build_schema(nothing) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_what_is_right_stays_as_it_is_and_null_is_not_given():
    right = {
        "args": ["a"],
        "env": {"A": "1"},
        "encoding": "base64",
        "timeout": 1.5,
        "count": 0,
        "flag": True,
        "ports": [1],
    }
    assert check(**right) == {"name": "web", **right}
    assert check(args=None, timeout=None) == {"name": "web"}


@pytest.mark.parametrize(
    ("given_as", "taken_as"),
    [
        ({"count": "5"}, {"count": 5}),
        ({"count": 5.0}, {"count": 5}),
        ({"timeout": "1.5"}, {"timeout": 1.5}),
        ({"flag": "true"}, {"flag": True}),
        ({"args": '["a", "b"]'}, {"args": ["a", "b"]}),
        ({"args": [1, "b"]}, {"args": ["1", "b"]}),
        ({"ports": ["80", 81]}, {"ports": [80, 81]}),
        ({"env": '{"A": "1"}'}, {"env": {"A": "1"}}),
        ({"name": 5}, {"name": "5"}),
    ],
)
def test_what_can_mean_only_one_thing_is_taken_for_it(given_as, taken_as):
    assert {name: check(**given_as)[name] for name in taken_as} == taken_as


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 5.5}, "the argument count must be a whole number"),
        ({"count": True}, "the argument count must be a whole number"),
        ({"count": "five"}, "the argument count must be a whole number"),
        ({"timeout": float("inf")}, "the argument timeout must be a number"),
        ({"timeout": "NaN"}, "the argument timeout must be a number"),
        ({"timeout": 10**400}, "the argument timeout must be a number"),
        ({"count": -(10**400)}, "the argument count must be a whole number"),
        ({"count": 2**53 + 1}, "the argument count must be a whole number"),
        ({"flag": 1}, "the argument flag must be true or false"),
        ({"args": "a b"}, "the argument args must be an array of strings"),
        ({"args": [["a"]]}, "the argument args must be an array of strings"),
        ({"ports": ["x"]}, "the argument ports must be an array of whole numbers"),
        ({"env": {"A": 1}}, "the argument env must be an object of strings"),
        ({"env": ["A=1"]}, "the argument env must be an object of strings"),
        ({"encoding": "hex"}, "the argument encoding must be one of text, base64"),
        ({"name": ["web"]}, "the argument name must be a string"),
        ({"name": None}, "the argument name is missing"),
        ({"nmae": "x"}, "there is no argument nmae"),
    ],
)
def test_what_is_wrong_is_named(arguments, message):
    assert refusal(**arguments) == message


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), ANY))
def test_whatever_a_model_sends_is_taken_or_refused_with_a_reason(arguments):
    try:
        taken = check_arguments(SCHEMA, arguments)
    except errors.UsageError:
        return
    assert isinstance(taken["name"], str)
    assert set(taken) <= set(arguments)
