"""A build is waited for through faults of the service, and its failure says why and what helps."""

import pytest

from tests.support.control import IMAGE_ARN, Controlled, Controls
from tests.support.peers import Answer, json_answer
from tests.unit.control.test_images import SPEC, draft, image, missing, version
from vmnest import errors
from vmnest.control import building
from vmnest.control.images import Draft, ImageVersion

DRAFT = Draft(IMAGE_ARN, "2.0", "UPDATING")


def at(state: str, **members: object) -> Answer:
    return json_answer(200, version("2.0", state=state, **members))


def image_at(state: str) -> Answer:
    return json_answer(200, image(state=state))


def fault() -> Answer:
    return json_answer(500, {"message": "oops"}, headers={"x-amzn-errortype": "InternalServerException"})


def build(generation: str, **members: object) -> dict[str, object]:
    return {
        "imageArn": IMAGE_ARN,
        "imageVersion": "2.0",
        "buildId": f"build-{generation}",
        "buildState": "FAILED",
        "architecture": "ARM_64",
        "chipset": "GRAVITON",
        "chipsetGeneration": generation,
        "createdAt": 1789463942.026,
        **members,
    }


def wait(made: Controlled, seconds: float | None = 600, **options: object) -> ImageVersion:
    return building.wait(
        made.control.images,
        DRAFT,
        deadline=made.deadline(seconds),
        clock=made.clock,
        **options,  # type: ignore[arg-type]
    )


def test_the_new_version_is_waited_for_and_then_the_image(controls: Controls):
    made = controls(
        at("PENDING"), at("IN_PROGRESS"), at("IN_PROGRESS"), at("SUCCESSFUL"), image_at("UPDATING"),
        at("SUCCESSFUL"), image_at("UPDATED"),
    )  # fmt: skip
    told: list[str] = []
    assert wait(made, on_change=told.append).runnable
    assert told == ["PENDING", "IN_PROGRESS", "SUCCESSFUL"]
    assert all("/versions/2.0" in request.target for request in made.peer.requests if "versions" in request.target)


def test_a_failed_build_says_what_each_build_says(controls: Controls):
    reasons = [
        build("4", stateReason="CONTAINER_BUILD_FAILED: The container image build failed."),
        build("3", stateReason=None, buildState="SUCCESSFUL"),
    ]
    made = controls(at("FAILED", status="INACTIVE"), json_answer(200, {"items": reasons, "nextToken": None}))
    with pytest.raises(errors.ImageBuildError, match=r"version 2\.0 of image demo was not built: CONTAINER_") as caught:
        wait(made)
    assert "vmnest image logs demo" in str(caught.value.hint)
    assert [(one["generation"], one["state"]) for one in caught.value.details["builds"]] == [
        ("4", "FAILED"),
        ("3", "SUCCESSFUL"),
    ]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Ready hook invocation timed out after PT5M", "/ready"),
        ("Validate hook invocation timed out after PT10M", "/validate"),
        ("Failed to start container", "CMD"),
        ("The container image build failed.", "Dockerfile"),
        ("S3_NO_SUCH_KEY", "build again"),
    ],
)
def test_reasons_that_are_known_come_with_advice(reason, words):
    assert words in str(building.hint(reason, image_arn=IMAGE_ARN))


def test_no_advice_is_made_up():
    assert building.hint("something new", image_arn=IMAGE_ARN) is None


def test_a_failure_without_any_reason_is_told(controls: Controls):
    made = controls(at("FAILED"), json_answer(200, {"items": [], "nextToken": None}))
    with pytest.raises(errors.ImageBuildError, match="gives no reason"):
        wait(made)


def test_a_fault_of_the_service_is_outlasted(controls: Controls):
    made = controls(at("PENDING"), *[fault()] * 7, at("SUCCESSFUL"), image_at("UPDATED"))
    assert wait(made).image_version == "2.0"


def test_a_fault_that_stays_ends_the_wait(controls: Controls):
    made = controls(at("PENDING"), *[fault()] * 500)
    with pytest.raises(errors.ServiceFaultError):
        wait(made, seconds=None)


def test_a_version_that_is_deleted_meanwhile_is_told(controls: Controls):
    made = controls(at("PENDING"), missing())
    with pytest.raises(errors.ImageNotFoundError):
        wait(made)


def test_too_late_says_that_the_build_goes_on(controls: Controls):
    made = controls(*[at("IN_PROGRESS")] * 50)
    with pytest.raises(errors.WaitTimeoutError, match="not built after 20 s") as caught:
        wait(made, seconds=20)
    assert "goes on without us" in str(caught.value.hint)


def test_a_deletion_is_over_when_the_image_is_not_found(controls: Controls):
    made = controls(image_at("DELETING"), missing())
    building.wait_deleted(made.control.images, IMAGE_ARN, deadline=made.deadline(), clock=made.clock)
    assert len(made.peer.requests) == 2


def test_a_deletion_that_fails_is_an_error(controls: Controls):
    made = controls(image_at("DELETING"), image_at("DELETE_FAILED"))
    with pytest.raises(errors.ConflictError, match="DELETE_FAILED"):
        building.wait_deleted(made.control.images, IMAGE_ARN, deadline=made.deadline(), clock=made.clock)


def test_an_image_settles_when_no_version_changes(controls: Controls):
    made = controls(image_at("UPDATING"), image_at("UPDATE_FAILED"))
    building.wait_settled(made.control.images, IMAGE_ARN, deadline=made.deadline(), clock=made.clock)
    assert len(made.peer.requests) == 2


def full(text: str = "Account 1 has reached the maximum number of concurrent builds allowed.") -> Answer:
    return json_answer(402, {"message": text}, headers={"x-amzn-errortype": "ServiceQuotaExceededException"})


def begin(made: Controlled, told: list[str], *, seconds: float = 600) -> Draft:
    return building.begin(
        lambda: made.control.images.create(SPEC, deadline=made.deadline(seconds)),
        deadline=made.deadline(seconds),
        on_full=told.append,
        clock=made.clock,
    )


def test_a_build_begins_once_another_one_has_ended(controls: Controls):
    made = controls(full(), full(), draft(201, "1.0", "CREATING"))
    told: list[str] = []
    assert begin(made, told).image_version == "1.0"
    assert told == ["waiting until another build of this account has ended"]


def test_a_build_that_finds_no_room_in_time_says_why(controls: Controls):
    made = controls(*[full()] * 40)
    with pytest.raises(errors.QuotaExceededError, match="concurrent builds") as caught:
        begin(made, [], seconds=60)
    assert "other builds" in str(caught.value.hint)


def test_other_quotas_are_not_waited_for(controls: Controls):
    made = controls(full("The base maximum allocated memory limit has been reached for this account."))
    with pytest.raises(errors.QuotaExceededError, match="memory limit"):
        begin(made, [])


def test_advice_names_the_command_for_this_machines_images():
    arn = "arn:aws:lambda:us-east-1:000000000000:microvm-image:mine"
    assert "vmnest --local image logs mine" in str(building.hint("CONTAINER_BUILD_FAILED", image_arn=arn))


def failed(hint: str | None) -> errors.ImageBuildError:
    return errors.ImageBuildError("not built: Line 2: no", hint=hint, details={"image_arn": IMAGE_ARN})


def test_what_the_log_of_a_failed_build_shows_is_not_said_twice():
    error, told = failed(building.hint("CONTAINER_BUILD_FAILED", image_arn=IMAGE_ARN)), list[str]()
    building.explain(error, ["Step 1", "Line 2: no"], tell=told.append)
    assert told == ["Step 1"]
    assert error.details["log"] == ["Step 1", "Line 2: no"]
    assert error.hint == "All of its log: vmnest image logs demo"


def test_without_a_log_the_advice_of_a_failed_build_stays():
    for lines, hint in (([], "one"), (["Step 1"], "two")):
        error = failed(hint)
        building.explain(error, lines, tell=lambda line: None)
        assert error.hint == hint
