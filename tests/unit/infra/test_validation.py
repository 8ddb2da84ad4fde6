"""What the values of a sandbox.yaml may be. Through the file, since what YAML makes of a word is half of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sandbox_yaml import read, write
from vmnest import errors
from vmnest.infra import config, validation
from vmnest.infra.sections import Entries, Origin, Scalar

ROLE = "arn:aws:iam::123456789012:role/a"
CONNECTOR = "arn:aws:lambda:us-east-1:123456789012:network-connector:nc-1"


def complaint(folder: Path, text: str) -> errors.ConfigurationError:
    with pytest.raises(errors.ConfigurationError) as caught:
        read(folder, text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("regoin: x\n", "1: there is no key regoin", "Did you mean region?"),
        ("image:\n  nmae: x\n", "2: there is no key image.nmae", "Did you mean image.name?"),
        ("guest_dir: x\n", "1: there is no key guest_dir", "Did you mean image.guest_dir?"),
        ("network:\n  vpc_id: x\n", "2: there is no key network.vpc_id", "Did you mean network.egress.vpc_id?"),
        ("zzz: x\n", "1: there is no key zzz", "The keys here are project, stack, region, image, role, "),
        ("role:\n  zzz: x\n", "2: there is no key role.zzz", "The keys of role are arn, name, extra_policy_arns."),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_known(tmp_path: Path, text: str, message: str, hint: str) -> None:
    error = complaint(tmp_path, text)
    assert str(error) == f"sandbox.yaml:{message}"
    assert str(error.hint).startswith(hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("region: no\n", "1: region must be an AWS region such as us-east-1, and is no, which YAML takes for true or"),
        ("project: on\n", "1: project must be a text of .*, and is on, which YAML takes for true or false"),
        ("project: ''\n", "1: project must be a text of .*, and is empty"),
        ("stack:\n", "1: stack must be a text of .*, and is empty"),
        ("project: a/b\n", "1: project must be a text of .*: 'a/b'"),
        ("project: 'a:b'\n", "1: project must be a text of .*: 'a:b'"),
        ("project: 'a '\n", "1: project must be a text of .*: 'a'"),
        (f"project: {'a' * 129}\n", "1: project must be a text of "),
        ("project: {a: b}\n", "1: project must be a text of .*, and is a mapping"),
        ("region: US_EAST\n", "1: region must be an AWS region such as us-east-1: 'US_EAST'"),
        ("image: x\n", "1: image must be a mapping of keys to values, and is 'x'"),
        ("image: [x]\n", "1: image must be a mapping of keys to values, and is a list"),
        ("image:\n  name: a b\n", "2: image.name must be the name of an image: .*: 'a b'"),
        (f"image:\n  name: {'a' * 65}\n", "2: image.name must be the name of an image"),
        ("image:\n  name: ''\n", "2: image.name must be the name of an image: .*, and is empty"),
        ("image:\n  base_image_arn: al2023-1\n", "2: image.base_image_arn must be the ARN of an image, such as .*: '"),
        (f"image:\n  base_image_arn: {ROLE}\n", "2: image.base_image_arn must be the ARN of an image"),
        ("image:\n  base_image_version: latest\n", "2: image.base_image_version must be a version of the base image"),
        ("image:\n  memory: lots\n", "2: image.memory must be a number of MiB, or a size such as 2GiB: 'lots'"),
        ("image:\n  memory: 0\n", "2: image.memory must be a number of MiB"),
        ("image:\n  memory: yes\n", "2: image.memory must be a number of MiB.*, and is yes, which YAML takes for true"),
        ("image:\n  environment: [A=1]\n", "2: image.environment must be a mapping of variables to texts, and is a l"),
        ("image:\n  environment: A=hunter2\n", "2: image.environment must be a mapping of .*, and is a single text"),
        ("image:\n  environment:\n    A: yes\n", "3: image.environment.A must be a text, and is yes, which YAML takes"),
        ("image:\n  capabilities: ALL\n", "2: image.capabilities must be a list, each ALL, and is 'ALL'"),
        ("image:\n  capabilities: [SYS_ADMIN]\n", "2: image.capabilities must be a list, each ALL: 'SYS_ADMIN'"),
        ("image:\n  log_group: a b\n", "2: image.log_group must be the name of a CloudWatch log group: 'a b'"),
        ("role:\n  arn: my-role\n", "2: role.arn must be the ARN of a role, such as .*: 'my-role'"),
        ("role:\n  arn: arn:aws:iam::123456789012:user/a\n", "2: role.arn must be the ARN of a role"),
        (f"role:\n  name: {'a' * 65}\n", "2: role.name must be the name of a role"),
        ("role:\n  extra_policy_arns: x\n", "2: role.extra_policy_arns must be a list, each the ARN of a managed pol"),
        ("role:\n  extra_policy_arns:\n  - x\n", "3: role.extra_policy_arns must be a list, each the ARN .*: 'x'"),
        ("role:\n  extra_policy_arns:\n  - ~\n", "3: role.extra_policy_arns must be .*, and is empty"),
        ("bucket:\n  name: My_Bucket\n", "2: bucket.name must be the name of a bucket: .*: 'My_Bucket'"),
        ("bucket:\n  name: ab\n", "2: bucket.name must be the name of a bucket"),
        ("bucket:\n  name: a..b\n", "2: bucket.name must be the name of a bucket, and S3 does not allow 'a..b'"),
        ("bucket:\n  name: 192.168.0.1\n", "2: bucket.name must be the name of a bucket, and S3 does not allow"),
        ("bucket:\n  name: xn--a\n", "2: bucket.name must be the name of a bucket"),
        ("bucket:\n  name: a--x-s3\n", "2: bucket.name must be the name of a bucket, and S3 does not allow"),
        ("network: {egress: {vpc_id: default}}\n", "1: network.egress.vpc_id must be the id of a VPC"),
        ("network: {egress: {subnet_ids: subnet-1}}\n", "1: network.egress.subnet_ids must be a list, each the id or"),
        ("network: {egress: {subnet_ids: [a, a]}}\n", "1: network.egress.subnet_ids names a twice"),
        ("network: {egress: {subnet_ids: ['']}}\n", "1: network.egress.subnet_ids must be a list, .*: ''"),
        (f"network: {{egress: {{subnet_ids: {list(range(17))}}}}}\n", "1: .*subnet_ids has 17 entries; at most 16"),
        ("network: {egress: {security_group_id: web}}\n", "1: network.egress.security_group_id must be the id of a s"),
        ("network: {egress: {connector_arn: nc-1}}\n", "1: network.egress.connector_arn must be the ARN of a network"),
        (f"network: {{egress: {{vpc_id: vpc-01234567, name: {'a' * 56}}}}}\n", "1: .*name must have at most 55 chara"),
        ("network: {egress: {vpc_id: vpc-01234567, name: sg-a}}\n", "1: network.egress.name must not begin with sg-"),
        ("tags:\n  aws:x: y\n", "2: tags.aws:x cannot be a tag of yours"),
        ("tags:\n  vmnest:x: y\n", "2: tags.vmnest:x cannot be a tag of yours"),
        ("tags:\n  'a<b': y\n", "2: tags.a<b must have 1 to 128 letters"),
        (f"tags:\n  a: {'x' * 257}\n", "2: tags.a must have a value of at most 256"),
        ('tags:\n  a: "x\\ny"\n', "2: tags.a must have a value of at most 256"),
        ("tags:\n  a: [x]\n", "2: tags.a must be a text, and is a list"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_line_key_and_what_is_expected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"^sandbox.yaml:{message}"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image:\n  environment: {A=hunter2: }\n", "2: image.environment.A=... is refused: .*named 'A=...'"),
        ("image:\n  memory: 3000\n", "2: image.memory is refused: .*3000 MiB.*512, 1024, 2048, 4096, 8192"),
        ("image:\n  environment:\n    A B: x\n", "3: image.environment.A B is refused: "),
        ("image:\n  environment:\n    AWS_REGION: x\n", "3: image.environment.AWS_REGION is refused: .*by the service"),
        (f"image:\n  environment:\n    A: {'x' * 4097}\n", "3: image.environment.A is refused: .* 4097 characters"),
        ('image:\n  environment:\n    A: "\\0"\n', "3: image.environment.A has a NUL in it"),
    ],
)
def test_what_an_image_cannot_have_is_told_with_its_line_before_it_is_built(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"^sandbox.yaml:{message}") as caught:
        read(tmp_path, text, want_guest=True)
    assert "hunter2" not in str(caught.value)
    assert len(read(tmp_path, text)) == 1  # nothing else needs to know


def test_no_more_tags_than_there_can_be(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"sandbox.yaml:2: tags has 46 entries; at most 45"):
        read(tmp_path, "tags:\n" + "".join(f"  k{number}: v\n" for number in range(46)))


def test_a_word_that_yaml_takes_for_something_else_is_to_be_quoted(tmp_path: Path) -> None:
    assert complaint(tmp_path, "region: no\n").hint == 'If that word is meant, put it in quotes: "no"'
    assert [each.project for each in read(tmp_path, 'project: "no"\n')] == ["no"]


@pytest.mark.parametrize("version", ["1", "1.0", "1.10", "0010"])
def test_numbers_are_taken_as_they_are_written(tmp_path: Path, version: str) -> None:
    (stack,) = read(
        tmp_path, f"image: {{base_image_version: {version}, environment: {{A: 0x1F, B: 1e3, C: 12:30:45}}}}\n"
    )
    assert stack.image.base_image_version == version
    assert stack.image.environment == {"A": "0x1F", "B": "1e3", "C": "12:30:45"}


@pytest.mark.parametrize(("written", "mib"), [("512", 512), ("2GiB", 2048), ("1024M", 1024), ("''", None), ("", None)])
def test_memory_is_mib_or_has_a_unit(tmp_path: Path, written: str, mib: int | None) -> None:
    (stack,) = read(tmp_path, f"image:\n  memory: {written}\n")
    assert stack.image.memory_mib == mib


@pytest.mark.parametrize("written", ["./guest", "guest", "guest/", "./guest/."])
def test_the_usual_folder_of_the_guest_may_be_missing(tmp_path: Path, written: str) -> None:
    (stack,) = read(tmp_path, f"image: {{guest_dir: {written}}}\n", want_guest=True)
    assert stack.image.guest_dir is None


def test_another_folder_of_the_guest_must_be_there_if_it_is_wanted(tmp_path: Path) -> None:
    text = "image:\n  guest_dir: other\n"
    (stack,) = read(tmp_path, text)
    assert stack.image.guest_dir == str(tmp_path / "other")
    with pytest.raises(
        errors.ConfigurationError, match=rf"sandbox.yaml:2: image.guest_dir does not exist: {tmp_path}/"
    ):
        read(tmp_path, text, want_guest=True)
    (tmp_path / "other").write_text("")
    with pytest.raises(errors.ConfigurationError, match=r"sandbox.yaml:2: image.guest_dir is no folder"):
        read(tmp_path, text, want_guest=True)
    (tmp_path / "other").unlink()
    (tmp_path / "other").mkdir()
    assert read(tmp_path, text, want_guest=True) == [stack]


def test_a_connector_is_wanted_only_if_something_about_it_is_said(tmp_path: Path) -> None:
    empty = "connector_arn: '', name: mine, vpc_id: '', subnet_ids: [], security_group_id: , operator_role_arn: ''"
    (stack,) = read(tmp_path, f"network: {{egress: {{{empty}}}}}\n")
    assert stack.egress is None
    assert stack.remarks == (
        "sandbox.yaml: network.egress has a name only, and makes no connector: say where it leads (vpc_id, subnet_ids)",
    )
    (stack,) = read(tmp_path, f"network: {{egress: {{operator_role_arn: '{ROLE}'}}}}\n")
    assert stack.egress is not None
    assert stack.egress.name == "agent-sandbox-egress"


def test_what_is_said_to_no_effect_is_remarked(tmp_path: Path) -> None:
    (stack,) = read(
        tmp_path,
        f"""
        role: {{arn: {ROLE}, extra_policy_arns: [arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess]}}
        network: {{egress: {{connector_arn: {CONNECTOR}, vpc_id: vpc-01234567}}}}
        """,
    )
    assert stack.remarks == (
        "sandbox.yaml: role.extra_policy_arns is not used: a role that is reused stays as it is",
        "sandbox.yaml: network.egress.vpc_id is not used: the connector is reused",
    )


def test_a_value_of_the_environment_is_never_quoted(tmp_path: Path) -> None:
    write(tmp_path / "sandbox.yaml", f'image: {{environment: {{PASSWORD: "hunter2{"x" * 5000}"}}}}\n')
    with pytest.raises(errors.ConfigurationError) as caught:
        config.load(want_guest=True, environ={}, cwd=str(tmp_path))
    error = caught.value
    assert "hunter2" not in f"{error}{error.hint}{error.details}"


@given(st.text(max_size=40))
def test_a_project_that_is_taken_makes_a_key_that_can_be_taken_apart(name: str) -> None:
    origin = Origin("f", "/")
    node = Entries({"project": Scalar(name, "text", 1)}, {"project": 1}, 1)
    try:
        stack = validation.build_stack(node, origin=origin)
    except errors.ConfigurationError:
        return
    assert stack.label.partition("/") == (name, "/", "dev")
    assert ":" not in name
    assert name == name.strip()
    assert name.isprintable()
