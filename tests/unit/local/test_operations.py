"""Operations: parameters in, result out."""

import threading
import time

import pytest

from tests.support import image_stage, lifecycle
from tests.support.machines import open_fake_cloud
from tests.support.shapes import botocore_service
from vmnest.local import connectors, faults, operations
from vmnest.wire import names

ARN = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
SERVICES = ("lambda-microvms", "lambda-core")


@pytest.fixture
def stage(tmp_path):
    with open_fake_cloud(tmp_path) as one:
        yield one


def call(stage, operation, /, *, local_options=None, **params):
    return operations.OPERATIONS[operation](stage.cloud, operations.Call(params, local_options=local_options))


def run(stage, **options):
    found = call(stage, "RunMicrovm", **{"imageIdentifier": ARN, **options})
    record = stage.vms.get(found["microvmId"])
    if stage.driver.gate is None:
        assert lifecycle.wait_for_state(record, names.RUNNING) == names.RUNNING
    return found


def build(stage, name, **settings):
    made = call(stage, "CreateMicrovmImage", **{**image_stage.SETTINGS, "name": name, **settings})
    stage.images.wait_settled(name)
    return made["imageArn"]


def refusal(stage, operation, /, **params):
    with pytest.raises(faults.Fault) as caught:
        call(stage, operation, **params)
    return caught.value.status, caught.value.message


def test_every_operation_is_in_the_model():
    known = {name for service in SERVICES for name in botocore_service(service).operation_names}
    assert set(operations.OPERATIONS) <= known


class TestRun:
    def test_the_answer_is_pending_with_the_services_defaults(self, stage):
        stage.driver.gate = threading.Event()
        found = run(stage)
        assert found["state"] == "PENDING"
        assert found["maximumDurationInSeconds"] == 28800
        assert found["ingressNetworkConnectors"] == [connectors.managed("HTTP_INGRESS")]
        assert found["egressNetworkConnectors"] == [connectors.managed("INTERNET_EGRESS")]
        assert found["startedAt"] == pytest.approx(time.time(), abs=5)
        absent = ("executionRoleArn", "idlePolicy", "terminatedAt", "stateReason", "terminationReasonCode")
        assert [found[name] for name in absent] == [None] * 5

    def test_what_was_asked_for_is_echoed(self, stage):
        policy = {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 0, "autoResumeEnabled": True}
        role = "arn:aws:iam::000000000000:role/x"
        found = run(stage, idlePolicy=policy, executionRoleArn=role, maximumDurationInSeconds=100)
        assert (found["idlePolicy"], found["executionRoleArn"]) == (policy, role)
        assert found["maximumDurationInSeconds"] == 100

    def test_local_details_tell_what_really_holds(self, stage):
        found = call(
            stage, "RunMicrovm", imageIdentifier=ARN, local_options='{"cpus": 1, "memory": 256, "egress_allow": []}'
        )
        record = stage.vms.get(found["microvmId"])
        assert lifecycle.wait_for_state(record, names.RUNNING) == names.RUNNING
        details = call(stage, "GetMicrovm", microvmIdentifier=found["microvmId"])["localDetails"]
        assert details == {
            "cpus": 1.0,
            "memory": 256,
            "disk": 1024,
            "driver": "fake",
            "isolation": "namespace",
            "enforced": "watch",
            "egress": [],
        }

    def test_the_image_must_be_there(self, stage):
        assert refusal(stage, "RunMicrovm", imageIdentifier="x")[0] == 400

    def test_a_payload_needs_the_run_hook(self, stage):
        found = run(stage, runHookPayload="x" * 4096)
        assert stage.vms.get(found["microvmId"]).spec.payload == "x" * 4096
        hookless = build(stage, "plain")
        assert refusal(stage, "RunMicrovm", imageIdentifier=hookless, runHookPayload="x") == (
            400,
            "The run hook must be enabled in the MicroVM image to pass the run hook payload",
        )
        assert call(stage, "RunMicrovm", imageIdentifier=hookless)["imageVersion"] == "1.0"

    def test_memory_and_egress_are_the_images_unless_something_else_is_asked_for(self, stage):
        arn = build(stage, "small", resources=[{"minimumMemoryInMiB": 512}])
        for local_options, memory in [(None, 512), ('{"cpus": 1}', 512), ('{"memory": 300}', 300)]:
            found = call(stage, "RunMicrovm", imageIdentifier=arn, local_options=local_options)
            assert stage.vms.get(found["microvmId"]).spec.options.memory_mib == memory
            assert found["egressNetworkConnectors"] == [connectors.managed("INTERNET_EGRESS")]

    def test_a_client_token_is_the_same_microvm_whatever_has_become_of_the_image(self, stage):
        arn = build(stage, "plain")
        params = {"imageIdentifier": arn, "clientToken": "t"}
        first = call(stage, "RunMicrovm", **params)
        call(stage, "UpdateMicrovmImage", **image_stage.SETTINGS, imageIdentifier=arn)
        stage.images.wait_settled("plain")
        assert call(stage, "RunMicrovm", **params)["microvmId"] == first["microvmId"]
        for label in ("1", "2"):
            call(stage, "UpdateMicrovmImageVersion", imageIdentifier=arn, imageVersion=label, status="INACTIVE")
        again = call(stage, "RunMicrovm", **params)
        assert (again["microvmId"], again["imageVersion"]) == (first["microvmId"], "1.0")

    @pytest.mark.parametrize("changes", [{"maximumDurationInSeconds": 61}, {"local_options": '{"cpus": 1}'}])
    def test_a_client_token_with_other_parameters_is_a_conflict(self, stage, changes):
        run(stage, clientToken="t")
        assert refusal(stage, "RunMicrovm", imageIdentifier=ARN, clientToken="t", **changes) == (
            409,
            "The client token was used before, with other parameters.",
        )

    def test_many_calls_with_one_client_token_start_one_microvm(self, stage):
        found = []
        threads = [
            threading.Thread(
                target=lambda: found.append(call(stage, "RunMicrovm", imageIdentifier=ARN, clientToken="t"))
            )
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({one["microvmId"] for one in found}) == 1
        assert len(found) == 10

    def test_an_image_whose_microvm_has_not_ended_cannot_be_deleted(self, stage):
        arn = build(stage, "plain")
        found = call(stage, "RunMicrovm", imageIdentifier=arn)
        assert refusal(stage, "DeleteMicrovmImage", imageIdentifier=arn) == (
            400,
            "Cannot delete microvm image with running microvms.",
        )
        record = stage.vms.get(found["microvmId"])
        call(stage, "TerminateMicrovm", microvmIdentifier=found["microvmId"])
        assert lifecycle.wait_for_state(record, names.TERMINATED) == names.TERMINATED
        assert call(stage, "DeleteMicrovmImage", imageIdentifier=arn)["state"] == "DELETING"

    def test_bad_local_options_are_refused(self, stage):
        with pytest.raises(faults.Fault, match="memory must be"):
            call(stage, "RunMicrovm", imageIdentifier=ARN, local_options='{"memory": 1}')


class TestList:
    def test_items_are_summaries_the_latest_first(self, stage):
        started = [run(stage) for _ in range(3)]
        found = call(stage, "ListMicrovms")
        assert [item["microvmId"] for item in found["items"]] == [one["microvmId"] for one in started[::-1]]
        assert set(found["items"][0]) == {"microvmId", "state", "imageArn", "imageVersion", "startedAt"}
        assert found["nextToken"] is None

    def test_pages_follow_each_other(self, stage):
        started = [run(stage)["microvmId"] for _ in range(3)]
        first = call(stage, "ListMicrovms", maxResults=2)
        run(stage)
        second = call(stage, "ListMicrovms", maxResults=2, nextToken=first["nextToken"])
        assert [item["microvmId"] for item in first["items"] + second["items"]] == started[::-1]
        assert second["nextToken"] is None

    @pytest.mark.parametrize(
        ("params", "count"),
        [
            ({"imageIdentifier": ARN}, 1),
            ({"imageIdentifier": ARN + "x"}, 0),
            ({"imageVersion": "1.0"}, 1),
            ({"imageVersion": "1"}, 1),
            ({"imageVersion": "2.0"}, 0),
            ({"imageVersion": "x"}, 0),
        ],
    )
    def test_filters_hold(self, stage, params, count):
        run(stage)
        assert len(call(stage, "ListMicrovms", **params)["items"]) == count


class TestStates:
    def test_terminating_is_asked_for_and_answered_at_once(self, stage):
        found = run(stage)
        assert call(stage, "TerminateMicrovm", microvmIdentifier=found["microvmId"]) == {}
        stage.vms.close()
        ended = call(stage, "GetMicrovm", microvmIdentifier=found["microvmId"])
        assert (ended["state"], ended["stateReason"]) == ("TERMINATED", "Success.")
        assert ended["terminatedAt"] >= ended["startedAt"]
        assert call(stage, "TerminateMicrovm", microvmIdentifier=found["microvmId"]) == {}

    def test_suspending_and_resuming_are_asked_for_and_answered_at_once(self, stage):
        found = run(stage)
        record = stage.vms.get(found["microvmId"])
        for name, state in [("SuspendMicrovm", "SUSPENDED"), ("ResumeMicrovm", "RUNNING")]:
            assert call(stage, name, microvmIdentifier=found["microvmId"]) == {}
            with record.changed:
                assert record.changed.wait_for(lambda state=state: record.state == state, 10)
            described = call(stage, "GetMicrovm", microvmIdentifier=found["microvmId"])
            assert (described["state"], described["stateReason"]) == (state, None)
            assert call(stage, name, microvmIdentifier=found["microvmId"]) == {}

    @pytest.mark.parametrize("name", ["SuspendMicrovm", "ResumeMicrovm"])
    def test_a_terminated_vm_stays_so(self, stage, name):
        found = run(stage)
        stage.vms.close()
        assert refusal(stage, name, microvmIdentifier=found["microvmId"]) == (
            400,
            f"The MicroVM {found['microvmId']} has been terminated and its state cannot be changed.",
        )

    @pytest.mark.parametrize(
        "name",
        [
            "GetMicrovm",
            "SuspendMicrovm",
            "ResumeMicrovm",
            "TerminateMicrovm",
            "CreateMicrovmAuthToken",
            "CreateMicrovmShellAuthToken",
        ],
    )
    def test_an_unknown_vm_is_not_found(self, stage, name):
        params = {"microvmIdentifier": "microvm-x", "expirationInMinutes": 1, "allowedPorts": [{"port": 1}]}
        assert refusal(stage, name, **params) == (404, "MicroVM not found: microvm-x")


class TestTokens:
    def mint(self, stage, ports, minutes=5, **options):
        found = run(stage, **options)
        params = {"microvmIdentifier": found["microvmId"], "expirationInMinutes": minutes, "allowedPorts": ports}
        return found["microvmId"], call(stage, "CreateMicrovmAuthToken", **params)["authToken"]

    @pytest.mark.parametrize(
        ("ports", "ranges"),
        [
            ([{"port": 8080}, {"port": 9000}], ((8080, 8080), (9000, 9000))),
            ([{"range": {"startPort": 8000, "endPort": 8100}}], ((8000, 8100),)),
            ([{"allPorts": {}}], ((1, 65535),)),
        ],
        ids=["ports", "range", "all"],
    )
    def test_a_token_covers_what_was_asked_for(self, stage, ports, ranges):
        microvm_id, headers = self.mint(stage, ports)
        assert list(headers) == ["X-aws-proxy-auth"]
        grant = stage.seal.open(headers["X-aws-proxy-auth"])
        assert (grant.microvm_id, grant.ports, grant.for_shell) == (microvm_id, ranges, False)
        assert grant.expires_at == pytest.approx(time.time() + 300, abs=10)

    def test_an_hour_is_the_most(self, stage):
        with pytest.raises(faults.Fault, match=r"ExpirationMinutes 61 exceeded max allowed of 60\."):
            self.mint(stage, [{"port": 1}], minutes=61)

    def test_a_range_must_not_be_empty(self, stage):
        with pytest.raises(faults.Fault, match="startPort 2 must not be greater than endPort 1"):
            self.mint(stage, [{"range": {"startPort": 2, "endPort": 1}}])

    def test_a_shell_token_needs_its_connector(self, stage):
        found = run(stage)
        params = {"microvmIdentifier": found["microvmId"], "expirationInMinutes": 1}
        assert refusal(stage, "CreateMicrovmShellAuthToken", **params) == (
            400,
            "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM.",
        )

    def test_with_its_connector_a_shell_token_is_made(self, stage):
        found = run(stage, ingressNetworkConnectors=[connectors.managed("SHELL_INGRESS")])
        params = {"microvmIdentifier": found["microvmId"], "expirationInMinutes": 1}
        headers = call(stage, "CreateMicrovmShellAuthToken", **params)["authToken"]
        assert stage.seal.open(headers["X-aws-proxy-auth"]).for_shell


class TestTags:
    def test_an_image_can_be_tagged(self, stage):
        call(stage, "TagResource", Resource=ARN, Tags={"a": "1", "b": "2"})
        call(stage, "UntagResource", Resource=ARN, TagKeys=["a"])
        assert call(stage, "ListTags", Resource=ARN) == {"Tags": {"b": "2"}}
        assert call(stage, "GetMicrovmImage", imageIdentifier=ARN)["tags"] == {"b": "2"}
        assert call(stage, "GetMicrovmImageVersion", imageIdentifier=ARN, imageVersion="1.0")["tags"] == {"b": "2"}

    @pytest.mark.parametrize("name", ["TagResource", "UntagResource", "ListTags"])
    def test_an_unknown_resource_is_not_found(self, stage, name):
        assert refusal(stage, name, Resource=ARN + "x", Tags={}, TagKeys=[])[0] == 404
