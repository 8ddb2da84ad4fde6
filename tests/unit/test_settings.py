"""The table of settings, checked against itself, and the order of sources."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors, settings


def test_names_and_variables_are_unique_and_alike() -> None:
    assert len({row.env for row in settings.SETTINGS.values()}) == len(settings.SETTINGS)
    for name, row in settings.SETTINGS.items():
        assert row.env == f"AGENT_SANDBOX_{name.upper()}"


@pytest.mark.parametrize("name", sorted(settings.SETTINGS))
def test_a_shown_default_means_the_default(name: str) -> None:
    row = settings.SETTINGS[name]
    if row.default not in (None, ()):
        assert row.parse(row.shown_default) == row.default
    assert row.meaning


def test_a_flag_is_stronger_than_the_environment_and_that_stronger_than_a_file() -> None:
    environ = {"AGENT_SANDBOX_AGENT_PORT": "81"}
    given_all = settings.resolve("agent_port", flag=80, file_value=82, file_name="sandbox.yaml", environ=environ)
    assert (given_all.value, given_all.source) == (80, "flag")
    without_flag = settings.resolve("agent_port", file_value=82, file_name="sandbox.yaml", environ=environ)
    assert (without_flag.value, without_flag.source) == (81, "environment AGENT_SANDBOX_AGENT_PORT")
    of_file = settings.resolve("agent_port", file_value=82, file_name="sandbox.yaml", environ={})
    assert (of_file.value, of_file.source) == (82, "file sandbox.yaml")
    assert settings.resolve("agent_port", environ={}).source == "default"


def test_an_empty_variable_counts_as_unset() -> None:
    assert settings.number("agent_port", environ={"AGENT_SANDBOX_AGENT_PORT": ""}) == 8080


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("target", "moon"),
        ("agent_port", "0"),
        ("agent_port", "65536"),
        ("agent_port", "8080/"),
        ("agent_port", "\u0668\u0660"),
        ("hook_port", "-1"),
        ("verify_tls", "perhaps"),
        ("local_disk", "8 parsecs"),
        ("local_disk", "0"),
        ("local_isolation", "none"),
        ("mcp_max_output_bytes", "1e6"),
        ("mcp_default_timeout_ms", "0"),
        ("mcp_host_path_policy", "Allowlist"),
    ],
)
def test_a_malformed_value_is_an_error_that_names_the_variable(name: str, text: str) -> None:
    variable = settings.SETTINGS[name].env
    with pytest.raises(errors.SettingError, match=variable) as caught:
        settings.resolve(name, environ={variable: text})
    assert caught.value.hint is not None
    assert variable in caught.value.hint


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 * 2**30), ("512M", 2**29), ("1000", 1000), ("1 kb", None), ("64kib", 65536)]
)
def test_sizes_have_binary_units(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(ValueError, match="size"):
            settings.parse_size(text)
    else:
        assert settings.parse_size(text) == size


@pytest.mark.parametrize("text", ["1", "true", "YES", " on "])
def test_on_has_many_words(text: str) -> None:
    assert settings.is_on("verify_tls", environ={"AGENT_SANDBOX_VERIFY_TLS": text})


@pytest.mark.parametrize("text", ["0", "false", "No", "off"])
def test_off_has_many_words(text: str) -> None:
    assert not settings.is_on("verify_tls", environ={"AGENT_SANDBOX_VERIFY_TLS": text})


def test_paths_are_split_as_in_path_and_know_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    environ = {"AGENT_SANDBOX_LOCAL_VISIBLE": "/data::~/models"}
    assert settings.resolve("local_visible", environ=environ).value == ("/data", "/home/somebody/models")


@given(st.text())
def test_a_parser_gives_a_value_or_a_value_error(text: str) -> None:
    for row in settings.SETTINGS.values():
        with contextlib.suppress(ValueError):
            row.parse(text)


def test_without_an_environment_given_it_is_the_processes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_WORKDIR", "/elsewhere")
    assert settings.text("workdir") == "/elsewhere"
    assert settings.environment() is os.environ


@pytest.mark.parametrize(
    ("local", "said", "is_local"),
    [
        (None, {}, False),
        (None, {"AGENT_SANDBOX_TARGET": "local"}, True),
        (False, {"AGENT_SANDBOX_TARGET": "local"}, False),
        (True, {"AGENT_SANDBOX_TARGET": "aws"}, True),
    ],
)
def test_the_caller_decides_whether_this_machine_is_meant_before_the_setting_does(
    local: bool | None, said: dict[str, str], is_local: bool
) -> None:
    assert settings.is_local(local, environ=said) is is_local
