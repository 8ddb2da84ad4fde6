"""sandbox.yaml: files, documents, and YAML itself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sandbox_yaml import read, write
from vmnest import errors
from vmnest.infra import config, template


def test_every_key_is_read(tmp_path: Path) -> None:
    (stack,) = read(
        tmp_path,
        """
        project: shop
        stack: prod
        region: eu-west-1
        image:
          name: shop-guest
          guest_dir: images/guest
          base_image_arn: arn:aws:lambda:eu-west-1:aws:microvm-image:al2023-1
          base_image_version: 1.10
          memory: 4GiB
          environment: {PORT: 8080, EMPTY: "", NOTHING: }
          capabilities: [ALL]
          log_group: /shop/guest
        role:
          arn: arn:aws:iam::123456789012:role/path/exec
          name: exec
        bucket:
          name: shop-artifacts
        network:
          egress:
            name: out
            vpc_id: vpc-0123456789abcdef0
            subnet_ids: [subnet-1, private a]
            security_group_id: sg-01234567
            operator_role_arn: arn:aws:iam::123456789012:role/operator
        tags: {team: blue, cost-center: 0042}
        """,
    )
    assert (stack.project, stack.stack, stack.region, stack.label) == ("shop", "prod", "eu-west-1", "shop/prod")
    image = stack.image
    assert (image.name, image.guest_dir) == ("shop-guest", str(tmp_path / "images/guest"))
    assert (image.base_image_version, image.memory_mib) == ("1.10", 4096)
    assert (image.environment, image.capabilities) == ({"PORT": "8080", "EMPTY": "", "NOTHING": ""}, ("ALL",))
    assert image.log_group == "/shop/guest"
    assert stack.role.arn == "arn:aws:iam::123456789012:role/path/exec"
    assert stack.bucket.name == "shop-artifacts"
    assert stack.egress is not None
    assert (stack.egress.name, stack.egress.subnet_ids) == ("out", ("subnet-1", "private a"))
    assert stack.tags == {"team": "blue", "cost-center": "0042"}
    assert (stack.source, stack.folder, stack.remarks) == ("sandbox.yaml", str(tmp_path), ())


def test_what_infra_init_writes_can_be_read_and_asks_for_no_connector(tmp_path: Path) -> None:
    (stack,) = read(tmp_path, template.render_template(region="eu-west-1"))
    assert (stack.label, stack.region, stack.egress) == ("vmnest/dev", "eu-west-1", None)
    assert stack.image.guest_dir is None


def test_an_empty_mapping_is_a_stack_with_all_defaults(tmp_path: Path) -> None:
    (stack,) = read(tmp_path, "image:\nrole:\nnetwork:\n  egress:\n")
    assert stack == config.Stack(folder=str(tmp_path))


def test_documents_are_stacks_of_their_own(tmp_path: Path) -> None:
    stacks = read(tmp_path, "project: a\n---\n# nothing\n---\nproject: b\nstack: prod\n")
    assert [each.label for each in stacks] == ["a/dev", "b/prod"]
    assert [each.source for each in stacks] == ["sandbox.yaml, document 1", "sandbox.yaml, document 2"]


def test_files_and_directories_are_read_in_order(tmp_path: Path) -> None:
    for name in ("x/b.yaml", "x/a.yml", "one.yaml"):
        write(tmp_path / name, f"project: {Path(name).stem}\n")
    stacks = config.load(["one.yaml", "x"], environ={}, cwd=str(tmp_path))
    assert [each.source for each in stacks] == ["one.yaml", "x/a.yml", "x/b.yaml"]
    assert stacks[1].folder == str(tmp_path / "x")


def test_the_same_stack_twice_is_an_error_that_names_both_places(tmp_path: Path) -> None:
    with pytest.raises(
        errors.ConfigurationError, match=r"a/dev is in sandbox.yaml, document 1 and again in sandbox.ya"
    ):
        read(tmp_path, "project: a\n---\nproject: a\nstack: dev\n")


def test_a_stack_is_chosen_where_a_project_has_it(tmp_path: Path) -> None:
    text = "project: a\nstack: dev\n---\nproject: a\nstack: prod\nregion: eu-west-1\n"
    (chosen,) = read(tmp_path, text, stack="prod")
    assert (chosen.label, chosen.region) == ("a/prod", "eu-west-1")
    with pytest.raises(errors.ConfigurationError, match="no stack of the project a is called test") as caught:
        read(tmp_path, text, stack="test")
    assert caught.value.hint == "Its stacks are dev, prod."


def test_the_only_stack_of_a_project_takes_the_name_that_is_asked_for(tmp_path: Path) -> None:
    stacks = read(tmp_path, "project: a\n---\nproject: b\nstack: prod\n", stack="prod")
    assert [each.label for each in stacks] == ["a/prod", "b/prod"]
    with pytest.raises(errors.UsageError, match="no name for a stack: 'a/b'"):
        read(tmp_path, "project: a\n", stack="a/b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("project: a\nprojekt: b\n", r"sandbox.yaml:2: there is no key projekt"),
        ("project: a\nproject: b\n", r"sandbox.yaml:2: the key project is here for the second time; first in line 1"),
        ("image:\n  name: a\n\tmemory: 1\n", r"sandbox.yaml:3: this is no YAML: .*'\\t'"),
        ("image: {name: a\n", r"sandbox.yaml:2: this is no YAML: while parsing a flow mapping"),
        ("a: b\0", r"sandbox.yaml:1: this is no YAML: a character that it forbids, 0x0"),
        ("- project\n", r"sandbox.yaml:1: the document must be a mapping of keys to values, and is a list"),
        ("just words\n", r"sandbox.yaml:1: the document must be a mapping .*, and is 'just words'"),
        ("", r"sandbox.yaml is empty"),
        ("---\n---\n", r"sandbox.yaml is empty"),
        ("[a]: b\n", r"sandbox.yaml:1: a key must be a single word"),
        ("image: &a\n  role: *a\n", r"sandbox.yaml:1: this holds an alias of itself"),
        ("image: *nowhere\n", r"sandbox.yaml:1: this is no YAML: found undefined alias"),
        ("image: !!python/object:os.system x\n", r"sandbox.yaml:1: the tag .*python/object:os.system means nothing"),
        ("project: !!binary aGk=\n", r"sandbox.yaml:1: the tag .*binary means nothing here"),
        ("image: !!set {a}\n", r"sandbox.yaml:1: the tag .*set means nothing here"),
        ("image:\n  <<: [1]\n", r"sandbox.yaml:2: what << refers to must be a mapping"),
        ("image: " + "[" * 200 + "]" * 200, r"sandbox.yaml:1: this is nested too deeply"),
        ("image: " + "[" * 100_000, r"sandbox.yaml is nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        read(tmp_path, text)


def test_tabs_are_named_as_the_mistake(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        read(tmp_path, "image:\n\tname: a\n")
    assert caught.value.hint == "Indent with spaces: YAML allows no tabs there."
    assert caught.value.details == {"file": "sandbox.yaml", "line": 2}


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfproject: a\r\nstack: b\r\n", b"project: a\nstack: b", b"{project: a, stack: b}"]
)
def test_a_mark_of_utf_8_and_ends_of_lines_of_other_systems_do_not_matter(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "sandbox.yaml").write_bytes(data)
    assert [each.label for each in config.load(environ={}, cwd=str(tmp_path))] == ["a/b"]


def test_what_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "sandbox.yaml").write_bytes("project: a\nstack: \u00fc\n".encode("latin-1"))
    with pytest.raises(errors.ConfigurationError, match=r"sandbox.yaml:2: this is not UTF-8"):
        config.load(environ={}, cwd=str(tmp_path))


def test_merge_keys_bring_in_what_is_not_there(tmp_path: Path) -> None:
    (stack,) = read(
        tmp_path,
        """
        bucket: &names {name: shop-artifacts}
        image: {<<: *names, memory: 512}
        role: {<<: [*names, {name: second}], arn: ""}
        """,
    )
    assert (stack.image.name, stack.image.memory_mib, stack.role.name) == ("shop-artifacts", 512, "shop-artifacts")


def test_an_unknown_key_that_was_merged_in_is_told_with_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"sandbox.yaml:1: there is no key role\.memory"):
        read(tmp_path, "image: &a {memory: 512}\nrole:\n  <<: *a\n")


def test_aliases_of_aliases_cost_nothing(tmp_path: Path) -> None:
    levels = "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60))
    with pytest.raises(errors.ConfigurationError, match="there is no key k0"):
        read(tmp_path, f"k0: &a0 [x]\n{levels}")
    merges = "".join(f"k{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60))
    with pytest.raises(errors.ConfigurationError, match="there is no key k0"):
        read(tmp_path, f"k0: &a0 {{name: x}}\n{merges}")


def test_a_file_of_absurd_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sandbox.yaml").write_bytes(b"#" * (config.LARGEST_BYTES + 1))
    with pytest.raises(errors.ConfigurationError, match="more than 524288 bytes"):
        config.load(environ={}, cwd=str(tmp_path))


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, reason in {"fifo": "not a regular file", "none.yaml": "No such file"}.items():
        with pytest.raises(errors.ConfigurationError, match=f"cannot read .*: .*{reason}"):
            config.load([name], environ={}, cwd=str(tmp_path))


def test_paths_begin_at_the_file_also_through_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real" / "sandbox.yaml", "image: {guest_dir: ../images}\n")
    (tmp_path / "link.yaml").symlink_to("real/sandbox.yaml")
    (stack,) = config.load(["link.yaml"], environ={}, cwd=str(tmp_path))
    assert stack.image.guest_dir == str(tmp_path / "images")


_WORDS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
_KEYS = st.sampled_from(["project", "stack", "region", "image", "role", "bucket", "network", "tags", "other"])


@given(st.dictionaries(_KEYS, _WORDS, max_size=4))
def test_whatever_stands_there_is_understood_or_refused_with_its_place(document: dict[str, object]) -> None:
    is_understood_or_refused(yaml.safe_dump(document).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    is_understood_or_refused(data)


def is_understood_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sandbox.yaml").write_bytes(data)
        try:
            config.load(environ={}, cwd=folder)
        except errors.ConfigurationError as error:
            complaint = str(error)
        else:
            complaint = "sandbox.yaml"
    assert complaint.startswith("sandbox.yaml")
