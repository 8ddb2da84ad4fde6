"""The sandbox.yaml that infra init writes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.sandbox_yaml import read
from vmnest import errors
from vmnest.infra import template, validation


def test_every_key_stands_in_it() -> None:
    text = template.render_template()
    for section, keys in validation.KEYS.items():
        for key in keys:
            assert re.search(rf"^[# ]*{key}:", text, re.MULTILINE), f"{section}.{key}"


def test_what_is_a_comment_in_it_can_be_made_use_of(tmp_path: Path) -> None:
    text = template.render_template()
    alive = re.sub(r"^( *)# (?=( *)[A-Za-z_]+:( |$))", r"\1", text, flags=re.MULTILINE)
    (stack,) = read(tmp_path, alive)
    assert (stack.image.memory_mib, stack.image.environment) == (2048, {"LANG": "C.UTF-8"})
    assert (stack.image.capabilities, stack.image.log_group) == (("ALL",), "/vmnest/guest")
    assert (stack.tags, stack.egress) == ({"owner": "me"}, None)


def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.yaml"
    path.write_text("mine" * 10_000)
    with pytest.raises(errors.UsageError, match="is there already") as caught:
        template.write_template(str(path))
    assert "--force" in str(caught.value.hint)
    assert path.read_text() == "mine" * 10_000
    template.write_template(str(path), force=True, region="eu-west-1")
    assert path.read_text() == template.render_template(region="eu-west-1")


def test_not_even_force_waits_for_a_reader_of_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.LocalFileError, match="cannot write"):
        template.write_template(str(tmp_path / "fifo"), force=True)
    with pytest.raises(errors.LocalFileError, match=r"cannot write .*No such file"):
        template.write_template(str(tmp_path / "none" / "sandbox.yaml"))
