"""The reader of botocore's model data."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any

import botocore.model
import pytest

from tests.support.shapes import botocore_service
from vmnest import errors
from vmnest.aws import model

SERVICES = ("lambda-microvms", "lambda-core")


def raw_model(**changes: Any) -> dict[str, Any]:
    """A service of one operation; ``changes`` replace shapes of the same name."""
    return {
        "metadata": {"apiVersion": "2020-01-01", "protocol": "rest-json", "endpointPrefix": "demo"},
        "operations": {
            "Put": {
                "http": {"method": "PUT", "requestUri": "/things/{Id}"},
                "input": {"shape": "PutRequest"},
                **changes.pop("operation", {}),
            }
        },
        "shapes": {
            "Text": {"type": "string"},
            "PutRequest": {
                "type": "structure",
                "required": ["Id"],
                "members": {"Id": {"shape": "Text", "location": "uri", "locationName": "Id"}},
            },
            **changes,
        },
    }


def write(folder: Path, version: str, data: bytes, *, name: str = "service-2.json.gz") -> None:
    place = folder / "demo" / version
    place.mkdir(parents=True)
    (place / name).write_bytes(data)


@pytest.mark.parametrize("service", SERVICES)
def test_every_operation_is_as_botocore_reads_it(service: str) -> None:
    theirs = botocore_service(service)
    ours = model.load(service)
    assert (ours.api_version, ours.signing_name) == (theirs.api_version, theirs.signing_name)
    for name in theirs.operation_names:
        operation, other = ours.operation(name), theirs.operation_model(name)
        assert (operation.method, operation.path_template) == (other.http["method"], other.http["requestUri"])
        assert operation.success_status == other.http["responseCode"]
        assert [operation.token_member] == (other.idempotent_members or [None])
        compare(operation.input, other.input_shape)
        compare(operation.output, other.output_shape)


def compare(ours: model.Shape | None, theirs: Any) -> None:
    """The same type, all the way down."""
    assert (ours is None) == (theirs is None)
    if ours is None:
        return
    assert (ours.name, ours.kind) == (theirs.name, theirs.type_name)
    assert (ours.minimum, ours.maximum) == (theirs.metadata.get("min"), theirs.metadata.get("max"))
    assert ours.choices == tuple(theirs.metadata.get("enum", ()))
    if ours.kind == "structure":
        assert ours.required == frozenset(theirs.required_members)
        assert (list(ours.members), ours.is_union) == (list(theirs.members), theirs.is_tagged_union)
        for name, member in ours.members.items():
            other = theirs.members[name]
            assert member.location == other.serialization.get("location")
            assert member.wire_name == other.serialization.get("name", name)
            compare(member.shape, other)
    elif ours.kind == "list":
        compare(ours.element, theirs.member)
    elif ours.kind == "map":
        compare(ours.key, theirs.key)
        compare(ours.value, theirs.value)


@pytest.mark.parametrize("service", SERVICES)
def test_a_model_is_read_once(service: str) -> None:
    assert model.load(service) is model.load(service)
    loaded = model.load(service)
    name = botocore_service(service).operation_names[0]
    assert loaded.operation(name) is loaded.operation(name)


def test_the_newest_version_is_taken(tmp_path: Path) -> None:
    for version in ("2020-01-01", "2025-09-09", "2024-12-31"):
        raw = raw_model()
        raw["metadata"]["apiVersion"] = version
        write(tmp_path, version, gzip.compress(json.dumps(raw).encode()))
    (tmp_path / "demo" / "2026-01-01").mkdir()  # of a newer version with paginators only
    assert model.load_from(str(tmp_path), service="demo").api_version == "2025-09-09"


def test_a_model_may_be_unpacked(tmp_path: Path) -> None:
    write(tmp_path, "2020-01-01", json.dumps(raw_model()).encode(), name="service-2.json")
    assert model.load_from(str(tmp_path), service="demo").operation("Put").method == "PUT"


def test_a_botocore_that_is_too_old_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.DependencyMissingError, match=model.BOTOCORE_NEEDED) as caught:
        model.load_from(str(tmp_path), service="lambda-microvms")
    assert caught.value.hint == "pip install 'botocore>=1.43.35'"


def test_a_missing_botocore_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.DependencyMissingError, match="not installed"):
        model.load("lambda-absent")


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b"{")], ids=["no gzip", "no json"])
def test_a_damaged_model_is_named(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, "2020-01-01", data)
    with pytest.raises(errors.DependencyMissingError, match="damaged"):
        model.load_from(str(tmp_path), service="demo")


def test_an_unknown_operation_is_named_with_the_version_of_the_model() -> None:
    with pytest.raises(errors.UnsupportedError, match=r"no operation FreezeMicrovm .*2025-09-09"):
        model.load("lambda-microvms").operation("FreezeMicrovm")


MEMBER = {"shape": "Text"}
UNSUPPORTED = [
    ("a streamed body", raw_model(PutRequest={"type": "structure", "payload": "Id", "members": {"Id": MEMBER}})),
    ("a blob", raw_model(Text={"type": "blob"})),
    ("a document", raw_model(PutRequest={"type": "structure", "document": True, "members": {}})),
    ("a host label", raw_model(PutRequest={"type": "structure", "members": {"Id": {**MEMBER, "hostLabel": True}}})),
    ("JSON in a header", raw_model(PutRequest={"type": "structure", "members": {"Id": {**MEMBER, "jsonvalue": True}}})),
    ("all headers", raw_model(PutRequest={"type": "structure", "members": {"Id": {**MEMBER, "location": "headers"}}})),
    (
        "a structure in the query",
        raw_model(
            PutRequest={"type": "structure", "members": {"Id": {"shape": "PutRequest", "location": "querystring"}}}
        ),
    ),
    ("a host prefix", raw_model(operation={"endpoint": {"hostPrefix": "data."}})),
    ("a greedy path", raw_model(operation={"http": {"method": "GET", "requestUri": "/{Key+}"}})),
    ("a query in the path", raw_model(operation={"http": {"method": "GET", "requestUri": "/a?b"}})),
    ("no signature", raw_model(operation={"authtype": "none"})),
]  # fmt: skip


@pytest.mark.parametrize("raw", [raw for _, raw in UNSUPPORTED], ids=[name for name, _ in UNSUPPORTED])
def test_what_we_cannot_encode_is_refused_by_name(raw: dict[str, Any]) -> None:
    with pytest.raises(errors.UnsupportedError, match="which vmnest cannot encode"):
        touch(model.Model("demo", raw).operation("Put").input)


def touch(shape: model.Shape | None) -> None:
    """Ask for every part, as an encoder does."""
    assert shape is not None
    for member in shape.members.values():
        assert member.shape.kind


def test_another_protocol_is_refused() -> None:
    raw = raw_model()
    raw["metadata"]["protocol"] = "query"
    with pytest.raises(errors.UnsupportedError, match="query"):
        model.Model("demo", raw)


def test_an_operation_that_cannot_be_encoded_does_not_spoil_the_others() -> None:
    raw = raw_model()
    raw["operations"]["Get"] = {"http": {"method": "GET", "requestUri": "/{Key+}"}}
    assert model.Model("demo", raw).operation("Put").name == "Put"


def test_errors_know_their_status() -> None:
    loaded = model.load("lambda-microvms")
    found = {
        name: shape.status
        for name in ("ServiceQuotaExceededException", "ConflictException")
        if (shape := loaded.error(name))
    }
    assert found == {"ServiceQuotaExceededException": 402, "ConflictException": 409}
    assert loaded.error("RunMicrovmRequest") is None
    assert loaded.error("NoSuchException") is None


def test_secrets_are_secret_in_old_models_too() -> None:
    raw = raw_model(EnvironmentVariableValue={"type": "string"})
    assert model.Model("demo", raw).shape("EnvironmentVariableValue").is_sensitive


@pytest.mark.parametrize("service", SERVICES)
def test_no_path_fits_two_operations(service: str) -> None:
    for templates in model.load(service).routes.values():
        for (first, _), (second, _) in itertools.combinations(templates, 2):
            pairs = zip(first, second, strict=True)
            assert any(one != other and "{" not in one + other for one, other in pairs)


@pytest.mark.parametrize("raw", [raw for _, raw in UNSUPPORTED], ids=[name for name, _ in UNSUPPORTED])
def test_what_others_encode_is_only_described(raw: dict[str, Any]) -> None:
    touch(model.Model("demo", raw, is_strict=False).operation("Put").input)


@pytest.mark.parametrize("service", ["cloudwatch", "ec2", "iam", "logs", "s3", "sts"])
def test_classic_services_are_described_as_botocore_reads_them(service: str) -> None:
    raw = model.read_data(service, "service-2")
    theirs = botocore.model.ServiceModel(raw, service)
    ours = model.Model(service, raw, is_strict=False)
    assert ours.signing_name == theirs.signing_name
    for name in theirs.operation_names:
        mine, judge = ours.operation(name), theirs.operation_model(name)
        assert mine.method == judge.http["method"]
        assert [mine.token_member] == (judge.idempotent_members or [None])
        if judge.input_shape is not None:
            assert mine.input is not None
            assert list(mine.input.members) == list(judge.input_shape.members)
            assert mine.input.required == set(judge.input_shape.required_members)
            assert mine.input.payload == judge.input_shape.serialization.get("payload")


def test_data_files_are_found_by_their_kind() -> None:
    assert "ListRoles" in model.read_data("iam", "paginators-1")["pagination"]
    assert "rules" in model.read_data("iam", "endpoint-rule-set-1")
    assert any(each["id"] == "aws-cn" for each in model.read_partitions()["partitions"])
    with pytest.raises(errors.DependencyMissingError, match="sts"):
        model.read_data("sts", "nothing-1")
