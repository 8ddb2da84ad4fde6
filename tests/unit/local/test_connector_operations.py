"""The operations on network connectors, as they are answered."""

import pytest

from vmnest.aws import shapes
from vmnest.local import account, connector_operations, faults, network_connectors

MODEL = shapes.load("lambda-core")
VPC = {"SubnetIds": ["subnet-1"], "NetworkProtocol": "IPv4", "AssociatedComputeResourceTypes": ["MicroVm"]}
PARAMS = {
    "Name": "one",
    "Configuration": {"VpcEgressConfiguration": VPC},
    "OperatorRole": "arn:aws:iam::000000000000:role/operator",
    "ClientToken": "t1",
}


@pytest.fixture
def known(tmp_path, fake_clock):
    return network_connectors.NetworkConnectors(str(tmp_path), may_do=lambda role, action: True, clock=fake_clock)


@pytest.fixture
def tags(tmp_path):
    return account.Tags(str(tmp_path))


@pytest.fixture
def call(known, tags):
    """Calls an operation, and holds its answer to the model."""

    def one(name, **params):
        result = connector_operations.OPERATIONS[name](known, tags, params)
        wire = shapes.build_answer(MODEL.operation(name), result)
        return shapes.parse_answer(MODEL.operation(name), wire.headers, wire.body)

    return one


def test_create_and_get_tell_what_the_service_does(call):
    made = call("CreateNetworkConnector", **PARAMS, Tags={"a": "b"})
    assert set(made) == {"Arn", "Configuration", "Id", "Name", "OperatorRole", "State", "Version", "VersionArn"}
    assert (made["State"], made["VersionArn"]) == ("PENDING", made["Arn"] + ":1")
    assert made["Configuration"]["VpcEgressConfiguration"] == {**VPC, "SecurityGroupIds": []}
    found = call("GetNetworkConnector", Identifier="one")
    assert (found["StateReason"], found["LatestVersion"]) == ("Initial creation", 1)
    assert "LastUpdateStatus" not in found
    assert "VersionArn" not in found
    pinned = call("GetNetworkConnector", Identifier=made["VersionArn"])
    assert pinned["VersionArn"] == made["VersionArn"]
    assert "LatestVersion" not in pinned


def test_tags_come_with_it_and_go_with_it(call, tags, fake_clock):
    arn = call("CreateNetworkConnector", **PARAMS, Tags={"a": "b"})["Arn"]
    assert tags.of(arn) == {"a": "b"}
    call("CreateNetworkConnector", **PARAMS, Tags={"a": "c"})  # the same token: nothing is done
    assert tags.of(arn) == {"a": "b"}
    fake_clock.advance(network_connectors.PENDING_SECONDS)
    assert call("DeleteNetworkConnector", Identifier=arn)["State"] == "DELETING"
    assert tags.of(arn) == {}


def test_lists_have_pages_and_a_state(call, fake_clock):
    for number in range(3):
        call("CreateNetworkConnector", **{**PARAMS, "Name": f"n{number}", "ClientToken": str(number)})
        if number == 1:
            fake_clock.advance(network_connectors.PENDING_SECONDS)
    first = call("ListNetworkConnectors", MaxItems=2)
    assert [item["Name"] for item in first["NetworkConnectors"]] == ["n0", "n1"]
    assert first["NetworkConnectors"][0]["Type"] == "VPC_EGRESS"
    rest = call("ListNetworkConnectors", MaxItems=2, Marker=first["NextMarker"])
    assert [item["Name"] for item in rest["NetworkConnectors"]] == ["n2"]
    assert "NextMarker" not in rest
    assert [item["Name"] for item in call("ListNetworkConnectors", State="PENDING")["NetworkConnectors"]] == ["n2"]


def test_a_marker_of_nobody_is_an_invalid_parameter(call):
    with pytest.raises(faults.Fault, match="Invalid Marker") as caught:
        call("ListNetworkConnectors", Marker="x")
    assert caught.value.error_type == "InvalidParameterValueException"


def test_versions_are_listed_with_their_arns(call, fake_clock):
    made = call("CreateNetworkConnector", **PARAMS)
    fake_clock.advance(network_connectors.PENDING_SECONDS)
    changed = {"VpcEgressConfiguration": {**VPC, "SubnetIds": ["subnet-2"]}}
    told = call("UpdateNetworkConnector", Identifier="one", Configuration=changed, ClientToken="t2")
    assert (told["Version"], told["LastUpdateStatus"], told["State"]) == (2, "InProgress", "ACTIVE")
    listed = call("ListNetworkConnectorVersions", Identifier="one")["NetworkConnectorVersions"]
    assert [item["VersionArn"] for item in listed] == [f"{made['Arn']}:1", f"{made['Arn']}:2"]
    assert call("ListNetworkConnectorVersions", Identifier="one", State="PENDING")["NetworkConnectorVersions"] == []
