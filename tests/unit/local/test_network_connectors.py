"""Network connectors as records: states, versions and the service's rules."""

import pytest

from vmnest.local import faults, network_connectors

ROLE = "arn:aws:iam::000000000000:role/operator"
VPC = {
    "SubnetIds": ["subnet-1", "subnet-2"],
    "SecurityGroupIds": ["sg-1"],
    "NetworkProtocol": "IPv4",
    "AssociatedComputeResourceTypes": ["MicroVm"],
}


@pytest.fixture
def known(tmp_path, fake_clock):
    return open_known(tmp_path, fake_clock)


def open_known(folder, fake_clock, *, may_do=lambda role, action: True):
    return network_connectors.NetworkConnectors(str(folder), may_do=may_do, clock=fake_clock)


def params(**changes):
    vpc = {**VPC, **changes.pop("vpc", {})}
    given = {
        "Name": "one",
        "Configuration": {"VpcEgressConfiguration": {key: value for key, value in vpc.items() if value is not None}},
        "OperatorRole": ROLE,
        "ClientToken": "t1",
        **changes,
    }
    return {key: value for key, value in given.items() if value is not None}


def create(known, **changes):
    return known.create(params(**changes))[0]


def change(known, connector, **changes):
    told = params(**{"ClientToken": "t2", **changes})
    return known.update({**told, "Identifier": connector.connector_id})


def refused(act, *args, **options):
    with pytest.raises(faults.Fault) as caught:
        act(*args, **options)
    return caught.value


class TestCreate:
    def test_it_is_pending_for_a_while_and_then_active(self, known, fake_clock):
        made = create(known)
        assert known.state_of(made.arn) == "PENDING"
        fake_clock.advance(network_connectors.PENDING_SECONDS)
        assert known.state_of(made.arn) == "ACTIVE"

    def test_its_arn_has_its_id(self, known):
        made = create(known)
        assert made.connector_id.startswith("nc-")
        assert made.arn == f"arn:aws:lambda:us-east-1:000000000000:network-connector:{made.connector_id}"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"ClientToken": None}, "ClientToken is a required field"),
            ({"OperatorRole": None}, "NetworkConnectorOperatorRole is required for VPC_EGRESS connector type"),
            ({"Configuration": {}}, "VpcEgressConfiguration is a required field"),
            ({"vpc": {"SubnetIds": None}}, "SubnetIds is a required field"),
            ({"vpc": {"NetworkProtocol": None}}, "NetworkProtocol is a required field"),
            (
                {"vpc": {"AssociatedComputeResourceTypes": None}},
                "AssociatedComputeResourceTypes is a required field",
            ),
            ({"Name": "arn:aws:lambda:us-east-1:000000000000:network-connector:x"}, "Invalid network connector name"),
        ],
    )
    def test_what_the_model_allows_and_the_service_demands(self, known, changes, message):
        fault = refused(create, known, **changes)
        assert (fault.status, fault.error_type) == (400, "InvalidParameterValueException")
        assert fault.message.startswith(message)
        assert known.all() == []

    def test_an_operator_role_without_rights_is_refused(self, tmp_path, fake_clock):
        asked = []
        known = open_known(tmp_path, fake_clock, may_do=lambda role, action: asked.append((role, action)))
        fault = refused(create, known)
        assert asked == [(ROLE, "ec2:CreateNetworkInterface")]
        assert fault.message == (
            "Encountered unauthorized operation while calling EC2 due to invalid ConnectorOperatorRole permissions"
        )

    def test_a_name_is_taken_once(self, known):
        create(known)
        fault = refused(create, known, ClientToken="t2")
        assert (fault.status, fault.error_type) == (409, "ResourceConflictException")

    def test_the_same_token_answers_the_same_connector(self, known):
        made = create(known)
        assert known.create(params()) == (made, False)
        assert refused(create, known, Name="two").error_type == "ResourceConflictException"

    def test_there_is_a_quota(self, known, monkeypatch):
        monkeypatch.setattr(network_connectors, "MAX_CONNECTORS", 1)
        create(known)
        fault = refused(create, known, Name="two", ClientToken="t2")
        assert fault.error_type == "NetworkConnectorLimitExceededException"


class TestGet:
    def test_id_name_arn_and_version_name_it(self, known):
        made = create(known)
        for identifier in (made.connector_id, "one", made.arn):
            assert known.get(identifier) == (made, None)
        assert known.get(f"{made.arn}:1") == (made, made.latest)

    def test_what_is_not_there_is_said_as_it_was_named(self, known):
        assert refused(known.get, "nc-0").message == "Network connector not found for: nc-0"
        assert refused(known.get, f"{create(known).arn}:2").status == 404

    def test_only_an_arn_has_a_state_to_run_with(self, known):
        create(known)
        assert known.state_of("one") is None


class TestUpdate:
    @pytest.fixture
    def made(self, known, fake_clock):
        made = create(known)
        fake_clock.advance(network_connectors.PENDING_SECONDS)
        return made

    def test_a_change_makes_a_version_and_takes_a_while(self, known, fake_clock, made):
        changed = change(known, made, vpc={"SubnetIds": ["subnet-9"]})
        assert (changed.latest.number, changed.state(fake_clock.time())) == (2, "ACTIVE")
        told = network_connectors.describe_update(changed, now=fake_clock.time())
        assert told["LastUpdateStatus"] == "InProgress"
        fake_clock.advance(network_connectors.UPDATE_SECONDS)
        assert network_connectors.describe_update(changed, now=fake_clock.time()) == {
            "LastUpdateStatus": "Successful",
            "LastUpdateStatusReason": None,
        }
        assert known.get(f"{made.arn}:1")[1].configuration == made.latest.configuration

    def test_nothing_new_makes_none_whatever_the_order(self, known, fake_clock, made):
        changed = change(known, made, vpc={"SubnetIds": ["subnet-2", "subnet-1"]})
        assert changed.latest.number == 1
        assert network_connectors.describe_update(changed, now=fake_clock.time()) == {
            "LastUpdateStatus": "Successful",
            "LastUpdateStatusReason": "No configuration changes detected",
        }

    def test_the_role_alone_can_be_changed(self, known, made):
        told = {"Identifier": "one", "OperatorRole": ROLE + "-2", "ClientToken": "t2"}
        assert known.update(told).latest.operator_role == ROLE + "-2"

    def test_one_update_goes_on_at_a_time(self, known, made):
        change(known, made, vpc={"SubnetIds": ["subnet-9"]})
        again = refused(change, known, made, vpc={"SubnetIds": ["subnet-8"]}, ClientToken="t3")
        assert (again.status, again.message[:24]) == (409, "An update is in progress")

    def test_the_same_token_updates_once(self, known, made):
        first = change(known, made, vpc={"SubnetIds": ["subnet-9"]})
        assert change(known, made, vpc={"SubnetIds": ["subnet-9"]}) == first

    def test_it_waits_until_the_connector_is_active(self, known, fake_clock):
        made = create(known)
        assert refused(change, known, made, vpc={"SubnetIds": ["subnet-9"]}).message.endswith("in state: PENDING")

    def test_versions_have_a_quota(self, known, made, monkeypatch):
        monkeypatch.setattr(network_connectors, "MAX_VERSIONS", 1)
        fault = refused(change, known, made, vpc={"SubnetIds": ["subnet-9"]})
        assert fault.error_type == "NetworkConnectorLimitExceededException"


class TestDelete:
    def test_it_goes_after_a_while_and_its_name_is_free(self, known, fake_clock):
        made = create(known)
        fake_clock.advance(network_connectors.PENDING_SECONDS)
        assert known.delete("one")[0].state(fake_clock.time()) == "DELETING"
        assert known.delete(made.arn)[0].state(fake_clock.time()) == "DELETING"
        fake_clock.advance(network_connectors.DELETING_SECONDS)
        assert refused(known.delete, made.arn).status == 404
        assert known.state_of(made.arn) is None
        assert create(known).connector_id != made.connector_id

    def test_it_waits_until_the_connector_is_active(self, known):
        create(known)
        assert refused(known.delete, "one").error_type == "ResourceConflictException"

    def test_an_old_version_goes_alone_and_the_latest_does_not(self, known, fake_clock):
        made = create(known)
        fake_clock.advance(network_connectors.PENDING_SECONDS)
        change(known, made, vpc={"SubnetIds": ["subnet-9"]})
        assert refused(known.delete, f"{made.arn}:2").status == 409
        known.delete(f"{made.arn}:1")
        assert [version.number for version in known.get("one")[0].versions] == [2]


class TestFolder:
    def test_the_next_daemon_knows_them(self, known, tmp_path, fake_clock):
        made = create(known)
        again = open_known(tmp_path, fake_clock)
        assert network_connectors.describe(again.all()[0], now=fake_clock.time()) == network_connectors.describe(
            made, now=fake_clock.time()
        )
        assert again.create(params())[1] is False

    @pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1, "connectors": [{}]}'])
    def test_what_is_damaged_is_kept_aside(self, tmp_path, fake_clock, text):
        path = tmp_path / "account" / network_connectors.FILE
        path.parent.mkdir()
        path.write_text(text)
        assert open_known(tmp_path, fake_clock).all() == []
        assert path.with_name(path.name + ".bad").read_text() == text
