"""The agent's settings: defaults, parsers, and what commands inherit."""

from __future__ import annotations

import os

import pytest

from guest.agentd import config, errors


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = config.load({})
    assert (settings.port, settings.hook_port, settings.bind) == (8080, 9000, "127.0.0.1")
    assert settings.workdir == "/work"
    assert settings.identity_path == "/run/agentd/identity"
    assert settings.suspend_drain_seconds == 8.0
    assert settings.ready_fd is None


def test_an_empty_variable_counts_as_unset() -> None:
    assert config.load({"AGENTD_PORT": "", "AGENTD_BIND": ""}).port == 8080


def test_every_setting_is_taken_from_its_variable() -> None:
    settings = config.load(
        {
            "AGENTD_PORT": "0",
            "AGENTD_HOOK_PORT": "65535",
            "AGENTD_BIND": "::1",
            "AGENTD_IDENTITY_PATH": "/x/id",
            "AGENTD_SUSPEND_DRAIN_SECONDS": "0.5",
            "AGENTD_READY_FD": "1",
            "AGENT_SANDBOX_WORKDIR": "/srv",
        }
    )
    assert (settings.port, settings.hook_port, settings.bind) == (0, 65535, "::1")
    assert (settings.identity_path, settings.workdir) == ("/x/id", "/srv")
    assert (settings.suspend_drain_seconds, settings.ready_fd) == (0.5, 1)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("AGENTD_PORT", "65536"),
        ("AGENTD_PORT", "-1"),
        ("AGENTD_PORT", "80 "),
        ("AGENTD_PORT", "٣"),
        ("AGENTD_HOOK_PORT", "http"),
        ("AGENTD_BIND", "localhost"),
        ("AGENTD_BIND", "256.0.0.1"),
        ("AGENTD_IDENTITY_PATH", "relative/identity"),
        ("AGENTD_SUSPEND_DRAIN_SECONDS", "soon"),
        ("AGENTD_SUSPEND_DRAIN_SECONDS", "-1"),
        ("AGENTD_SUSPEND_DRAIN_SECONDS", "nan"),
        ("AGENTD_SUSPEND_DRAIN_SECONDS", "inf"),
        ("AGENTD_READY_FD", "stdout"),
        ("AGENTD_READY_FD", "987654"),
        ("AGENT_SANDBOX_WORKDIR", "work"),
    ],
)
def test_a_malformed_variable_is_named_with_its_value(variable: str, text: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        config.load({variable: text})
    assert str(caught.value).startswith(f"{variable}={text!r}: must be ")
    assert "\n" not in str(caught.value)


def test_commands_inherit_the_environment_without_what_starts_the_agent() -> None:
    given = {b"PATH": b"/bin", b"AGENTD_READY_FD": b"3", b"PYTHONPATH": b"/opt/agentd"}
    assert config.command_environment(given, own_root=b"/opt/agentd") == {b"PATH": b"/bin"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"/opt/agentd:/srv/lib", b"/srv/lib"),
        (b"/a:/opt/agentd:/b", b"/a:/b"),
        (b"/srv/lib", b"/srv/lib"),
    ],
)
def test_what_others_put_on_pythonpath_stays(before: bytes, after: bytes) -> None:
    assert config.command_environment({b"PYTHONPATH": before}, own_root=b"/opt/agentd") == {b"PYTHONPATH": after}


def test_an_environment_without_our_variables_is_kept_as_it_is() -> None:
    assert config.command_environment(os.environb, own_root=b"/nowhere") == {
        name: value for name, value in os.environb.items() if name != b"AGENTD_READY_FD"
    }
