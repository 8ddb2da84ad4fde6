"""What a model demands of values, in AWS's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.shapes import botocore_service
from vmnest.aws import constraints, model

MICROVMS, CORE = model.load("lambda-microvms"), model.load("lambda-core")


def shape(**raw: Any) -> model.Shape:
    return model.Shape(MICROVMS, name="Any", raw=raw)


def service_side(wanted: model.Shape, value: object) -> list[str]:
    return [one.to_service() for one in constraints.find_violations(wanted, value, path=("at",), is_client=False)]


def client_side(wanted: model.Shape, value: object) -> list[str]:
    return [one.to_client() for one in constraints.find_violations(wanted, value, path=("at",), is_client=True)]


@pytest.mark.parametrize(
    ("raw", "value", "constraint"),
    [
        ({"type": "integer", "min": 60}, 59, "Member must have value greater than or equal to 60"),
        ({"type": "long", "max": 60}, 61, "Member must have value less than or equal to 60"),
        ({"type": "string", "max": 2}, "abc", "Member must have length less than or equal to 2"),
        ({"type": "string", "min": 1}, "", "Member must have length greater than or equal to 1"),
        ({"type": "string", "pattern": "[a-z]+"}, "a\n", "Member must satisfy regular expression pattern: [a-z]+"),
        ({"type": "string", "enum": ["A", "B"]}, "C", "Member must satisfy enum value set: [A, B]"),
    ],
)
def test_a_value_out_of_bounds_is_reported(raw: dict[str, Any], value: object, constraint: str) -> None:
    assert service_side(shape(**raw), value) == [f"Value '{value}' at 'at' failed to satisfy constraint: {constraint}"]


@pytest.mark.parametrize("raw", [{"min": 1, "max": 3}, {"pattern": "[a-c]{1,3}"}, {"enum": ["abc", "a"]}, {}])
def test_a_value_within_bounds_is_not(raw: dict[str, Any]) -> None:
    assert service_side(shape(type="string", **raw), "abc") == []
    assert service_side(shape(type="string", **raw), "a") == []


def test_both_a_size_and_a_pattern_are_reported() -> None:
    found = service_side(shape(type="string", min=3, pattern="[a-z]*"), "A")
    assert [text.rpartition("Member must ")[2].split(" ")[0] for text in found] == ["have", "satisfy"]


def test_a_client_leaves_choices_to_the_service() -> None:
    assert client_side(shape(type="string", enum=["A"]), "NEWER") == []


def test_elements_of_a_list_are_reported_once_with_all_that_is_demanded_of_them() -> None:
    connector = CORE.shape("NetworkConnectorVpcEgressConfiguration").members["SecurityGroupIds"].shape
    assert service_side(connector, ["sg-1", "x", "y"]) == [
        "Value '[sg-1, x, y]' at 'at' failed to satisfy constraint: Member must satisfy constraint: "
        "[Member must have length less than or equal to 1024, Member must have length greater than or equal to 0, "
        "Member must satisfy regular expression pattern: sg-[0-9a-zA-Z]*]"
    ]


def test_structures_in_a_list_are_counted_from_one_for_the_service_and_from_zero_for_python() -> None:
    ports = MICROVMS.shape("CreateMicrovmAuthTokenRequest").members["allowedPorts"].shape
    value = [{"port": 80}, {"range": {"startPort": 1}}]
    assert service_side(ports, value) == [
        "Value null at 'at.2.member.range.endPort' failed to satisfy constraint: Member must not be null"
    ]
    assert client_side(ports, value) == ["at[1].range.endPort: Member must not be null"]


def test_keys_and_values_of_a_map_are_reported_for_the_map() -> None:
    tags = MICROVMS.shape("TagResourceRequest").members["Tags"].shape
    assert service_side(tags, {"": "v"})[0].startswith(
        "Value '{=v}' at 'at' failed to satisfy constraint: Map keys must satisfy constraint: [Member must have length"
    )
    assert "Map value must satisfy constraint" in service_side(tags, {"k": "v" * 257})[0]


def test_secrets_are_never_shown() -> None:
    environment = MICROVMS.shape("CreateMicrovmImageRequest").members["environmentVariables"].shape
    (found,) = service_side(environment, {"TOKEN": "s3cret" * 1000})
    assert found.startswith("Value at 'at' failed")
    assert "s3cret" not in found


@pytest.mark.parametrize("value", [{}, {"disabled": {}, "cloudWatch": {}}])
def test_a_union_has_exactly_one_member(value: dict[str, Any]) -> None:
    logging = MICROVMS.shape("Logging")
    assert any("exactly one member" in text for text in service_side(logging, value))
    assert client_side(logging, {"disabled": {}, "cloudWatch": None}) == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 5),
        ("string", b"bytes"),
        ("integer", True),
        ("integer", 5.0),
        ("integer", "5"),
        ("boolean", 1),
        ("list", "abc"),
        ("structure", []),
        ("map", [("a", "b")]),
        ("timestamp", 5),
    ],
)
def test_a_wrong_type_is_reported_to_a_client(kind: str, value: object) -> None:
    raw = {"list": {"member": {"shape": "String"}}, "structure": {"members": {}}}.get(kind, {})
    assert client_side(shape(type=kind, **raw), value) == [
        f"at: Member must be of type {kind}, not {type(value).__name__}"
    ]


def test_wrong_types_within_collections_are_reported_with_their_places() -> None:
    connectors = MICROVMS.shape("RunMicrovmRequest").members["ingressNetworkConnectors"].shape
    assert client_side(connectors, ["a", 5, None]) == [
        "at[1]: Member must be of type string, not int",
        "at[2]: Member must not be null",
    ]
    tags = MICROVMS.shape("TagResourceRequest").members["Tags"].shape
    assert client_side(tags, {"a": 1, 2: "b"}) == [
        "at.a: Member must be of type string, not int",
        "at.2: Member must be of type string, not int",
    ]


def test_a_name_that_the_model_does_not_know_is_reported_to_a_client_only() -> None:
    policy = MICROVMS.shape("IdlePolicy")
    value = {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 0, "autoResumeEnabled": True, "maxIdle": 1}
    (found,) = client_side(policy, value)
    assert found.startswith("at.maxIdle: Member is not known; those known are maxIdleDurationSeconds, ")
    assert service_side(policy, value) == []


def test_an_empty_part_of_the_path_is_refused_whatever_the_model_says() -> None:
    raw = {"members": {"Id": {"shape": "String", "location": "uri"}, "Name": {"shape": "String"}}}
    found = constraints.find_violations(shape(type="structure", **raw), {"Id": "", "Name": ""}, is_client=True)
    assert [one.to_client() for one in found] == ["Id: Member must have length greater than or equal to 1"]


def test_half_of_a_surrogate_pair_is_refused() -> None:
    assert client_side(shape(type="string"), "\ud800") == ["at: Member must be text that UTF-8 can encode"]


# -- Java --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        r"[\p{L}\p{N}]*",
        r"[a-z&&[^b]]+",
        r"[a-z[0-9]]+",
        r"(?i)abc",
        r"(?<name>a)",
        r"a++",
        r"a*+b",
        r"a{1,2}+",
        r"\Qa.b\E",
        r"\x{41}",
        r"\h+",
        r"\b",
        "[",
        "a)",
        "{",
    ],
)
def test_patterns_that_python_might_read_otherwise_are_left_to_the_service(pattern: str) -> None:
    assert constraints.compile_java(pattern) is None
    assert service_side(shape(type="string", pattern=pattern), "anything") == []


@pytest.mark.parametrize("service", [MICROVMS, CORE], ids=lambda service: service.service)
def test_the_patterns_of_the_models_are_checked_but_for_classes_of_unicode(service: model.Model) -> None:
    operations = [service.operation(name) for name in botocore_service(service.service).operation_names]
    names = {member.shape.name for operation in operations for member in members(operation.input)}
    patterns = {service.shape(name).pattern for name in names} - {None}
    skipped = {pattern for pattern in patterns if pattern and constraints.compile_java(pattern) is None}
    assert all(r"\p{" in pattern for pattern in skipped)
    assert len(patterns - skipped) >= 2


def members(wanted: model.Shape | None) -> list[model.Member]:
    return [] if wanted is None else list(wanted.members.values())


def test_digits_are_those_of_ascii_as_in_java() -> None:
    assert service_side(shape(type="string", pattern=r"\d+"), "٣") != []


def test_a_dot_never_raises_a_false_alarm() -> None:
    assert service_side(shape(type="string", pattern=r"a.b"), "a\nb") == []


@pytest.mark.parametrize(("text", "code"), [("", 0), ("a", 97), ("abc", 96354), ("hello", 99162322)])
def test_the_hash_is_javas(text: str, code: int) -> None:
    assert constraints._java_hash(text) == code ^ (code >> 16)


def test_members_are_reported_in_the_recorded_order() -> None:
    order = constraints.in_java_order(MICROVMS.shape("CreateMicrovmImageRequest").members)
    recorded = [name for name in order if name in {"baseImageArn", "codeArtifact", "buildRoleArn"}]
    assert recorded == ["baseImageArn", "codeArtifact", "buildRoleArn"]


@given(names=st.sets(st.text(max_size=8), max_size=30))
def test_the_order_loses_no_name(names: set[str]) -> None:
    assert sorted(constraints.in_java_order(dict.fromkeys(names))) == sorted(names)


def test_values_are_shown_as_java_shows_them() -> None:
    violation = constraints.Violation(("At",), "no", {"a": [True, None], "b": 5})
    assert violation.to_service() == "Value '{a=[true, null], b=5}' at 'at' failed to satisfy constraint: no"


METRICS = model.Model("cloudwatch", model.read_data("cloudwatch", "service-2"), is_strict=False)


@pytest.mark.parametrize(
    ("raw", "value", "fits"),
    [
        ({"type": "double", "min": 1}, 1.5, True),
        ({"type": "double", "min": 1}, 1, True),
        ({"type": "double", "min": 1}, 0.5, False),
        ({"type": "double"}, True, False),
        ({"type": "double"}, "1.5", False),
        ({"type": "float"}, 1.5, True),
        ({"type": "blob", "max": 3}, b"abc", True),
        ({"type": "blob", "max": 3}, b"abcd", False),
        ({"type": "blob"}, "text", False),
    ],
)
def test_types_of_the_classic_services_are_checked_too(raw: dict[str, Any], value: object, fits: bool) -> None:
    wanted = model.Shape(METRICS, name="Any", raw=raw)
    assert (client_side(wanted, value) == []) is fits
