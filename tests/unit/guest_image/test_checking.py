"""What the service would refuse is refused before an upload; what is merely suspicious is told, and passes."""

import io

import pytest

from vmnest import errors
from vmnest.control.image_specs import Hooks
from vmnest.guest_image import checking
from vmnest.guest_image.packing import Package


def package(dockerfile: str = "FROM scratch\n", **members: object) -> Package:
    options: dict[str, object] = {
        "size": 100,
        "digest": "0" * 64,
        "names": frozenset({"Dockerfile"}),
        "content_size": 100,
        "warnings": (),
        "machines": {},
        "dockerfile": dockerfile,
        **members,
    }
    return Package(io.BytesIO(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", [None, 512, 1024, 2048, 4096, 8192])
def test_the_sizes_that_there_are_pass(memory):
    checking.check_settings(memory_mib=memory, environment={"A": "b", "empty": ""})


@pytest.mark.parametrize("memory", [1, 511, 3000, 16384])
def test_another_size_is_refused_with_those_that_there_are(memory):
    with pytest.raises(errors.GuestImageError, match=f"{memory} MiB") as caught:
        checking.check_settings(memory_mib=memory, environment={})
    assert "512, 1024, 2048, 4096, 8192" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"AWS_REGION": "x"}, "AWS_REGION is set by the service"),
        ({"a b": "x"}, "'a b'"),
        ({"": "x"}, "''"),
        ({"A=secret": "x"}, "'A=...'"),
        ({"n" * 257: "x"}, "no variable"),
        ({"A": "secret" * 700}, "the value of A has 4200 characters"),
        ({f"A{number}": "" for number in range(101)}, "101 variables are too many"),
    ],
    ids=["reserved", "space", "empty", "equals", "long-name", "long-value", "many"],
)
def test_variables_that_the_service_refuses_are_refused_before(environment, words):
    with pytest.raises(errors.GuestImageError) as caught:
        checking.check_settings(memory_mib=None, environment=environment)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_nothing_is_said_of_a_package_that_is_fine():
    found = package("FROM a\nENV AGENTD_PORT=8080 \\\n    AGENTD_HOOK_PORT=9000\nEXPOSE 8080 9000\n")
    assert checking.check(found, hooks=Hooks()) == ()


def test_what_the_packing_saw_is_told():
    assert checking.check(package(warnings=("odd",)), hooks=None) == ("odd",)


def test_programs_for_another_processor_are_told_not_refused():
    found = package(machines={"X86_64": ("a", "b", "c", "d"), "ARM_64": ("fine",)})
    (told,) = checking.check(found, hooks=None)
    assert told == "a, b, c and 1 more will not run: made for X86_64, and the image is for ARM_64"
    (told,) = checking.check(found, hooks=None, architecture="X86_64")
    assert told.startswith("fine will not run")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("FROM --platform=linux/amd64 a", True),
        ("from --platform=linux/arm64/v8 a", False),
        ("FROM --platform=$BUILDPLATFORM a", False),
        ("# FROM --platform=linux/amd64 a", False),
    ],
)
def test_a_platform_that_is_not_the_images_is_told(line, told):
    assert bool(checking.check(package(f"{line}\n"), hooks=None)) == told


def test_a_hook_port_that_nobody_listens_on_is_refused():
    found = package("FROM a\nENV AGENTD_HOOK_PORT 9001\n")
    with pytest.raises(errors.GuestImageError, match=r"port 9001, and .* on 9000"):
        checking.check(found, hooks=Hooks())
    assert checking.check(found, hooks=Hooks(port=9001)) == ()
    assert checking.check(found, hooks=None) == ()


def test_a_hook_port_that_is_not_exposed_is_told():
    (told,) = checking.check(package("FROM a\nEXPOSE 8080/tcp\n"), hooks=Hooks())
    assert "EXPOSE" in told


def test_another_port_of_the_agent_is_told():
    found = package('FROM a\nENV AGENTD_PORT="8081"\n')
    (told,) = checking.check(found, hooks=None)
    assert "AGENT_SANDBOX_AGENT_PORT" in told
    assert checking.check(found, hooks=None, agent_port=8081) == ()


def test_more_than_a_builds_disk_holds_is_refused_and_much_is_told():
    with pytest.raises(errors.GuestImageError, match=r"8\.0 GiB"):
        checking.check(package(content_size=8 << 30), hooks=None)
    (told,) = checking.check(package(content_size=2 << 30), hooks=None)
    assert "2.0 GiB" in told


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 64])
def test_names_that_images_can_have(name):
    assert checking.check_name(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", "x" * 65, "a/b", "a\n"])
def test_names_that_no_image_can_have(name):
    with pytest.raises(errors.GuestImageError, match="no image can be named"):
        checking.check_name(name)
