"""All that a version can be made of is what botocore's model accepts, and no variable's value is ever shown."""

from vmnest.aws import shapes
from vmnest.control.image_specs import Hooks, ImageSpec

BARE = ImageSpec("demo", "s3://b/k", "arn:aws:iam::111122223333:role/build", "arn:aws:lambda:us-east-1:aws:x")
FULL = BARE._replace(
    base_image_version="1",
    description="it",
    memory_mib=512,
    environment={"A": "secret"},
    has_all_capabilities=True,
    hooks=Hooks(port=9001),
    log_group="/g",
    egress_connectors=("arn:c",),
)


def test_what_is_not_said_is_not_sent():
    sent = {name: value for name, value in BARE.to_wire().items() if value is not None}
    assert sent == {
        "codeArtifact": {"uri": "s3://b/k"},
        "buildRoleArn": BARE.build_role_arn,
        "baseImageArn": BARE.base_image_arn,
    }


def test_the_model_accepts_all_that_can_be_said():
    model = shapes.load("lambda-microvms")
    create = {**FULL.to_wire(), "name": "demo", "tags": {"a": "b"}}
    update = {**FULL.to_wire(), "imageIdentifier": "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"}
    assert b'"minimumMemoryInMiB": 512' in shapes.build_request(model.operation("CreateMicrovmImage"), create).body
    assert b'"logGroup": "/g"' in shapes.build_request(model.operation("UpdateMicrovmImage"), update).body


def test_every_hook_is_on_with_its_timeout():
    wire = Hooks().to_wire()
    assert wire["port"] == 9000
    assert wire["microvmImageHooks"] == {
        "ready": "ENABLED",
        "readyTimeoutInSeconds": 300,
        "validate": "ENABLED",
        "validateTimeoutInSeconds": 300,
    }
    assert wire["microvmHooks"] == {
        "run": "ENABLED",
        "runTimeoutInSeconds": 60,
        "resume": "ENABLED",
        "resumeTimeoutInSeconds": 30,
        "suspend": "ENABLED",
        "suspendTimeoutInSeconds": 10,
        "terminate": "ENABLED",
        "terminateTimeoutInSeconds": 5,
    }


def test_variables_are_not_shown():
    assert "secret" not in repr(FULL)
