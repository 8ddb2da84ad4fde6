"""Connectors are sent whole and waited for until they settle; why one failed is told in the service's words."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.clock import FakeClock
from tests.support.peers import Answer, Peer, Serve, Step, json_answer
from vmnest import errors, transport
from vmnest.aws import credentials, service
from vmnest.control.connectors import Connectors
from vmnest.deadline import Deadline

ARN = "arn:aws:lambda:us-east-1:111122223333:network-connector:nc-1"


class Made:
    def __init__(self, peer: Peer, sender: transport.Transport, clock: FakeClock) -> None:
        self.peer = peer
        self.clock = clock
        self.connectors = Connectors(
            service.Service(
                "lambda-core",
                endpoint=peer.url,
                region="us-east-1",
                credentials=credentials.StaticSource(credentials.build("AKIDEXAMPLE", "secret")),
                transport=sender,
                clock=clock,
            ),
            clock=clock,
        )

    def deadline(self, seconds: float = 900) -> Deadline:
        return Deadline(seconds, clock=self.clock)


@pytest.fixture
def make(serve: Serve, fake_clock: FakeClock) -> Iterator[Callable[..., Made]]:
    sender = transport.Transport(environ={})

    def build(*script: Step) -> Made:
        return Made(serve(*script), sender, fake_clock)

    yield build
    sender.close()


def connector(state: str = "ACTIVE", *, status: int = 200, **members: object) -> Answer:
    answer = {
        "Arn": ARN,
        "Id": "nc-1",
        "Name": "egress",
        "State": state,
        "OperatorRole": "arn:aws:iam::111122223333:role/op",
        "Configuration": {
            "VpcEgressConfiguration": {
                "SubnetIds": ["subnet-1"],
                "SecurityGroupIds": ["sg-1"],
                "NetworkProtocol": "IPv4",
                "AssociatedComputeResourceTypes": ["MicroVm"],
            }
        },
        "LastModified": "2026-09-15T09:19:02.026Z",
        **members,
    }
    return json_answer(status, {name: value for name, value in answer.items() if value is not None})


def missing() -> Answer:
    return json_answer(
        404,
        {"Message": f"Network connector not found for: {ARN}"},
        headers={"x-amzn-errortype": "ResourceNotFoundException"},
    )


def test_all_that_the_service_demands_is_sent(make):
    made = make(connector("PENDING", status=202))
    found = made.connectors.create(
        "egress",
        subnet_ids=["subnet-1"],
        security_group_ids=["sg-1"],
        operator_role_arn="arn:aws:iam::111122223333:role/op",
        tags={"a": "b"},
        deadline=made.deadline(),
    )
    assert (found.state, found.subnet_ids, found.security_group_ids) == ("PENDING", ("subnet-1",), ("sg-1",))
    sent = json.loads(made.peer.requests[0].body)
    token = sent.pop("ClientToken")
    assert 1 <= len(token) <= 64
    assert sent == {
        "Name": "egress",
        "Configuration": {
            "VpcEgressConfiguration": {
                "SubnetIds": ["subnet-1"],
                "SecurityGroupIds": ["sg-1"],
                "NetworkProtocol": "IPv4",
                "AssociatedComputeResourceTypes": ["MicroVm"],
            }
        },
        "OperatorRole": "arn:aws:iam::111122223333:role/op",
        "Tags": {"a": "b"},
    }


def test_an_update_sends_the_whole_configuration(make):
    made = make(connector(status=202, LastUpdateStatus="InProgress"))
    found = made.connectors.update(
        "nc-1",
        subnet_ids=["subnet-2"],
        security_group_ids=[],
        operator_role_arn="arn:aws:iam::111122223333:role/op",
        deadline=made.deadline(),
    )
    assert found.last_update_status == "InProgress"
    request = made.peer.requests[0]
    assert (request.method, request.target) == ("PUT", "/2026-04-04/network-connectors/nc-1")
    assert json.loads(request.body)["Configuration"]["VpcEgressConfiguration"]["SubnetIds"] == ["subnet-2"]


def test_listing_follows_the_markers(make):
    item = {"Arn": ARN, "Name": "egress", "Id": "nc-1", "Type": "VPC_EGRESS", "State": "ACTIVE"}
    made = make(
        json_answer(200, {"NetworkConnectors": [], "NextMarker": "m 1"}),
        json_answer(200, {"NetworkConnectors": [item]}),
    )
    assert [one.name for one in made.connectors.list(deadline=made.deadline())] == ["egress"]
    assert made.peer.requests[1].target == "/2026-04-04/network-connectors?Marker=m%201"


def test_listing_that_goes_round_is_an_error(make):
    made = make(*[json_answer(200, {"NetworkConnectors": [], "NextMarker": "m"})] * 2)
    with pytest.raises(errors.AnswerInvalidError, match="circle"):
        list(made.connectors.list(deadline=made.deadline()))


def test_active_is_waited_for(make):
    made = make(connector("PENDING"), connector("PENDING"), connector("ACTIVE", StateReason="Initial creation"))
    told: list[str] = []
    found = made.connectors.wait_active("nc-1", deadline=made.deadline(), on_change=told.append)
    assert found.state == "ACTIVE"
    assert told == ["PENDING", "ACTIVE"]


def test_an_update_that_goes_on_is_waited_for(make):
    made = make(connector(LastUpdateStatus="InProgress"), connector(LastUpdateStatus="Successful"))
    assert made.connectors.wait_active("nc-1", deadline=made.deadline()).last_update_status == "Successful"


def test_a_fault_of_the_service_is_outlasted(make):
    fault = json_answer(500, {"Message": "oops"}, headers={"x-amzn-errortype": "ServiceException"})
    made = make(connector("PENDING"), *[fault] * 7, connector())
    assert made.connectors.wait_active("nc-1", deadline=made.deadline()).state == "ACTIVE"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"State": "FAILED", "StateReason": "SubnetOutOfIPAddresses"}, "is FAILED: SubnetOutOfIPAddresses"),
        ({"State": "INACTIVE", "StateReason": None}, "is INACTIVE: the service gives no reason"),
        ({"LastUpdateStatus": "Failed", "LastUpdateStatusReason": "no rights"}, "no rights"),
    ],
    ids=["failed", "inactive", "update-failed"],
)
def test_a_failure_has_the_services_reason(make, members, reason):
    made = make(connector(**members))
    with pytest.raises(errors.ConnectorError, match=reason):
        made.connectors.wait_active("nc-1", deadline=made.deadline())


def test_too_late_says_that_it_goes_on(make):
    made = make(*[connector("PENDING")] * 50)
    with pytest.raises(errors.WaitTimeoutError, match="not ACTIVE after 20 s"):
        made.connectors.wait_active("nc-1", deadline=made.deadline(20))


def test_a_deletion_is_over_when_it_is_not_found(make):
    made = make(connector("DELETING", status=202), connector("DELETING"), missing())
    made.connectors.delete("nc-1", deadline=made.deadline())
    made.connectors.wait_deleted("nc-1", deadline=made.deadline())
    assert [request.method for request in made.peer.requests] == ["DELETE", "GET", "GET"]


def test_a_deletion_that_fails_is_an_error(make):
    made = make(connector("DELETE_FAILED", StateReason="in use"))
    with pytest.raises(errors.ConnectorError, match="in use"):
        made.connectors.wait_deleted("nc-1", deadline=made.deadline())


def test_one_that_is_not_there_is_not_found(make):
    made = make(missing())
    with pytest.raises(errors.ResourceNotFoundError, match="nc-1"):
        made.connectors.get("nc-1", deadline=made.deadline())
