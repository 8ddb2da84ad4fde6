"""``create``, and what is made of its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.peers import Peer, Serve, json_answer
from vmnest import registry
from vmnest.cli.main import main

ARN = "arn:aws:lambda:eu-west-1:111122223333:microvm-image:demo"
REFUSAL = json_answer(400, {"message": "no"}, headers={"x-amzn-errortype": "ValidationException"})


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of the test's own, with keys for AWS, which is nowhere."""
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for name in ("AGENT_SANDBOX_TARGET", "AGENT_SANDBOX_EGRESS_CONNECTOR", "AGENT_SANDBOX_EXECUTION_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """A control plane that refuses every run (there are never more than three)."""
    peer = serve(*[REFUSAL] * 3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
    return peer


def requested(service: Peer, *options: str, verb: str = "create") -> dict[str, object]:
    """What the service is asked for; it refuses, and nothing is left."""
    tail = ["--", "true"] if verb == "run" else ["web"]
    assert main([verb, "-i", ARN, *options, *tail]) == (125 if verb == "run" else 1)
    assert registry.open_default().all() == []
    body = json.loads(service.requests[-1].body)
    assert isinstance(body, dict)
    return body


DEFAULTS = {"maxIdleDurationSeconds": 900, "suspendedDurationSeconds": 28800, "autoResumeEnabled": True}


@pytest.mark.parametrize("verb", ["create", "run"])
def test_without_options_everything_is_as_by_default(service: Peer, verb: str) -> None:
    body = requested(service, verb=verb)
    assert body.pop("clientToken")
    assert body == {"imageIdentifier": ARN, "idlePolicy": DEFAULTS, "maximumDurationInSeconds": 28800}


@pytest.mark.parametrize("verb", ["create", "run"])
def test_every_option_reaches_the_service(service: Peer, verb: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_text('{"a": 1}')
    body = requested(
        service,
        *("--idle", "2m", "--suspended-for=0", "--max-duration", "2h", "--no-auto-resume"),
        *("--image-version", "3.0", "--role", "arn:aws:iam::111122223333:role/r", "--log-group", "/my/logs"),
        *("--run-payload", f"@{payload}", "--ingress", "HTTP_INGRESS", "--ingress", "SHELL_INGRESS"),
        *("--egress-connector", "INTERNET_EGRESS", "--label", "team=a"),
        verb=verb,
    )
    managed = "arn:aws:lambda:eu-west-1:aws:network-connector:aws-network-connector:"
    assert body.pop("clientToken")
    assert body == {
        "imageIdentifier": ARN,
        "imageVersion": "3.0",
        "executionRoleArn": "arn:aws:iam::111122223333:role/r",
        "idlePolicy": {"maxIdleDurationSeconds": 120, "suspendedDurationSeconds": 0, "autoResumeEnabled": False},
        "maximumDurationInSeconds": 7200,
        "ingressNetworkConnectors": [f"{managed}HTTP_INGRESS", f"{managed}SHELL_INGRESS"],
        "egressNetworkConnectors": [f"{managed}INTERNET_EGRESS"],
        "runHookPayload": '{"a": 1}',
        "logging": {"cloudWatch": {"logGroup": "/my/logs"}},
    }


@pytest.mark.parametrize("options", [["--suspend-after", "5m"], ["--idle=300", "--suspend-after", "5m"]], ids=" ".join)
def test_the_idle_time_has_two_names(service: Peer, options: list[str]) -> None:
    assert requested(service, *options)["idlePolicy"] == {**DEFAULTS, "maxIdleDurationSeconds": 300}


def test_what_is_allowed_on_aws_is_the_connector_to_the_internet(service: Peer) -> None:
    managed = "arn:aws:lambda:eu-west-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS"
    assert requested(service, "--egress-allow", "internet")["egressNetworkConnectors"] == [managed]


def test_egress_is_the_connector_that_is_configured(service: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = "arn:aws:lambda:eu-west-1:111122223333:network-connector:mine"
    monkeypatch.setenv("AGENT_SANDBOX_EGRESS_CONNECTOR", connector)
    assert requested(service, "-e")["egressNetworkConnectors"] == [connector]
    assert "egressNetworkConnectors" not in requested(service)
    given = requested(service, "--egress", "--egress-connector", f"{connector}-2")
    assert given["egressNetworkConnectors"] == [f"{connector}-2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--idle", "59"], "--idle: must be a whole number of seconds, 60 to 28800"),
        (["--suspend-after", "9h"], "--suspend-after: must be"),
        (["--idle", "60", "--suspend-after", "61"], "--idle 60 and --suspend-after 61 are one option"),
        (["--suspended-for", "-1"], "--suspended-for: must be"),
        (["--max-duration", "0"], "--max-duration: must be"),
        (["--max-duration", "0.5"], "--max-duration: must be"),
        (["--label", "team"], "--label: must be KEY=VALUE"),
        (["--run-payload", "@/no/such"], "--run-payload: cannot read /no/such"),
        (["--run-payload", "x" * 4097], "4096"),
        (["--egress"], "no egress connector is configured"),
        (["--egress-connector", "BOGUS"], "BOGUS"),
        (["--egress-allow", "pypi.org"], "on AWS a sandbox cannot be held to pypi.org"),
        (["--egress-allow", "https://pypi.org"], "not allowed to a sandbox as egress"),
        (["--ingress", "NO_INGRESS"], "NO_INGRESS"),
        (["--log-group", ""], "log_group"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(
    options: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["create", "web", "-i", ARN, *options]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "x" * 4097 not in captured.err
    assert registry.open_default().all() == []


@pytest.mark.parametrize("line", [["create", "web"], ["run", "--", "true"]], ids=" ".join)
def test_what_aws_lacks_here_leads_to_doctor(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def hint(**environ: str) -> str:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        main(line)
        return capfd.readouterr().err.rstrip("\n")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_SANDBOX_INFRA_STATE", str(tmp_path / "infra.json"))
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AGENT_SANDBOX_REGION", "AGENT_SANDBOX_IMAGE_ARN"):
        monkeypatch.delenv(name, raising=False)
    told = "vmnest doctor shows all that is missing."
    assert hint().endswith(told)
    assert hint(AWS_REGION="eu-west-1").endswith(told)
    assert hint(AGENT_SANDBOX_IMAGE_ARN=ARN, AWS_ACCESS_KEY_ID="").endswith(told)
    assert not hint(AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AGENT_SANDBOX_TARGET="moon").endswith(told)
