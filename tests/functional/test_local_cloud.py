"""The local cloud as a real process: its life, and the clients that people have."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

from tests.support.cloud import LocalCloud, end_daemon, living_processes, open_cloud, start_daemon
from tests.support.paths import AWS_CLI, ROOT
from vmnest import deadline, errors, rendezvous

IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
WAIT_SECONDS = 60

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
needs_aws = pytest.mark.skipif(not AWS_CLI.exists(), reason="needs the AWS CLI that tools/test installs")


@contextlib.contextmanager
def microvm(cloud, **params):
    """A MicroVM that answers, as RunMicrovm described it."""
    service = cloud.client()
    started = service.run_microvm(imageIdentifier=IMAGE, **params)
    try:
        token = mint(cloud, started, 8080)
        end = time.monotonic() + WAIT_SECONDS
        while ask(started, "GET", "/healthz", headers=token)[0] != 200:
            assert time.monotonic() < end, service.get_microvm(microvmIdentifier=started["microvmId"])
        yield started
    finally:
        service.terminate_microvm(microvmIdentifier=started["microvmId"])


def mint(cloud, started, *ports):
    return cloud.client().create_microvm_auth_token(
        microvmIdentifier=started["microvmId"],
        expirationInMinutes=5,
        allowedPorts=[{"port": port} for port in ports],
    )["authToken"]


def ask(started, method, path, *, headers, content=None):
    netloc = urllib.parse.urlsplit(started["endpoint"]).netloc
    with contextlib.closing(http.client.HTTPConnection(netloc, timeout=WAIT_SECONDS)) as connection:
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()


def execute(cloud, started, *words, **members):
    content = {"command": words[0], "args": list(words[1:]), **members}
    status, body = ask(started, "POST", "/v1/exec", headers=mint(cloud, started, 8080), content=content)
    answer = json.loads(body)
    assert status == 200, answer
    return answer["exit_code"], base64.b64decode(answer["stdout"])


class TestClients:
    @needs_aws
    def test_the_aws_cli_runs_gets_lists_mints_and_terminates(self, shared_cloud):
        def aws(*words):
            done = subprocess.run(
                [AWS_CLI, "lambda-microvms", *words, "--output", "json"],
                env=shared_cloud.environ,
                capture_output=True,
                timeout=WAIT_SECONDS,
            )
            assert done.returncode == 0, done.stderr.decode()
            return json.loads(done.stdout or b"null")

        started = aws("run-microvm", "--image-identifier", IMAGE)
        name = ["--microvm-identifier", started["microvmId"]]
        try:
            assert aws("get-microvm", *name)["state"] in {"PENDING", "RUNNING"}
            assert started["microvmId"] in [item["microvmId"] for item in aws("list-microvms")["items"]]
            ports = json.dumps([{"port": 8080}])
            minted = aws("create-microvm-auth-token", *name, "--expiration-in-minutes", "5", "--allowed-ports", ports)
            assert list(minted["authToken"]) == ["X-aws-proxy-auth"]
        finally:
            aws("terminate-microvm", *name)

    @needs_curl
    def test_curl_execs_with_the_token(self, shared_cloud):
        with microvm(shared_cloud) as started:
            token = mint(shared_cloud, started, 8080)["X-aws-proxy-auth"]
            content = json.dumps({"command": "sh", "args": ["-c", "echo $((6 * 7))"]})
            command = ["curl", "-sS", "--noproxy", "*", "-H", f"X-aws-proxy-auth: {token}", "-d", content]
            command += ["-H", "Content-Type: application/json", started["endpoint"] + "/v1/exec"]
            done = subprocess.run(command, capture_output=True, check=True, timeout=WAIT_SECONDS)
        assert base64.b64decode(json.loads(done.stdout)["stdout"]) == b"42\n"

    def test_tokens_of_other_vms_and_ports_are_refused(self, shared_cloud):
        with microvm(shared_cloud) as one, microvm(shared_cloud) as two:
            missing = ask(one, "GET", "/healthz", headers={})
            foreign = ask(one, "GET", "/healthz", headers=mint(shared_cloud, two, 8080))
            port = ask(one, "GET", "/healthz", headers=mint(shared_cloud, one, 3000))
            nobody = ask(one, "GET", "/", headers={**mint(shared_cloud, one, 3000), "X-aws-proxy-port": "3000"})
        assert missing == (403, b"Request missing authentication")
        assert foreign == (403, b"Token authentication failed")
        assert port == (403, b"Access to port denied")
        assert nobody == (502, b"")

    def test_an_unsigned_request_is_refused(self, shared_cloud):
        netloc = urllib.parse.urlsplit(shared_cloud.url).netloc
        with contextlib.closing(http.client.HTTPConnection(netloc, timeout=WAIT_SECONDS)) as connection:
            connection.request("GET", "/2025-09-09/microvms")
            response = connection.getresponse()
            assert response.status == 403
            assert response.getheader("x-amzn-errortype") == "MissingAuthenticationTokenException"
            assert json.loads(response.read()) == {"message": "Missing Authentication Token"}

    def test_the_run_hook_comes_before_traffic(self, shared_cloud):
        with microvm(shared_cloud, runHookPayload='{"tenant": "a"}') as started:
            status, identity = execute(shared_cloud, started, "cat", "/run/agentd/identity")
        assert status == 0
        assert identity

    def test_the_vm_has_the_services_variables(self, shared_cloud):
        with microvm(shared_cloud) as started:
            _, text = execute(shared_cloud, started, "env")
        assert f"AWS_LAMBDA_MICROVM_IMAGE_ARN={IMAGE}".encode() in text
        assert b"AWS_REGION=us-east-1" in text
        assert b"AWS_ACCESS_KEY_ID" not in text

    def test_a_program_in_the_vm_can_be_reached_on_its_port(self, shared_cloud):
        with microvm(shared_cloud) as started:
            script = "mkdir -p /work/www; echo served > /work/www/a; cd /work/www; python3 -m http.server 3000"
            headers = {**mint(shared_cloud, started, 3000), "X-aws-proxy-port": "3000"}
            with contextlib.ExitStack() as stack:
                thread = threading.Thread(
                    target=execute,
                    args=(shared_cloud, started, "sh", "-c", script),
                    kwargs={"timeout": 15},
                    daemon=True,
                )
                stack.callback(thread.join, 20)
                thread.start()
                end = time.monotonic() + WAIT_SECONDS
                while (got := ask(started, "GET", "/a", headers=headers))[0] == 502:
                    assert time.monotonic() < end
                    time.sleep(0.05)
                assert got == (200, b"served\n")
                ask(started, "POST", "/v1/exec", headers=mint(shared_cloud, started, 8080), content=STOP_SERVER)

    def test_20_mb_go_in_and_come_out(self, shared_cloud):
        data = os.urandom(1 << 20) * 20
        with microvm(shared_cloud) as started:
            headers = mint(shared_cloud, started, 8080)
            content = {"path": "/work/big", "content": base64.b64encode(data).decode(), "encoding": "base64"}
            status, body = ask(started, "POST", "/v1/fs/write", headers=headers, content=content)
            assert status == 200, body
            assert execute(shared_cloud, started, "cat", "/work/big") == (0, data)

    def test_a_vm_that_ends_by_itself_is_terminated_with_its_exit_code(self, shared_cloud):
        service = shared_cloud.client()
        with microvm(shared_cloud, maximumDurationInSeconds=3) as started:
            end = time.monotonic() + WAIT_SECONDS
            while (found := service.get_microvm(microvmIdentifier=started["microvmId"]))["state"] != "TERMINATED":
                assert time.monotonic() < end
                time.sleep(0.05)
        assert found["stateReason"] == "MicroVM exceeded maximum lifetime."


STOP_SERVER = {"command": "pkill", "args": ["-f", "http.server"]}


class TestLife:
    def test_a_starter_that_waits_for_its_output_is_not_held_up(self, tmp_path):
        with open_cloud() as cloud:
            # The daemon holds none of its starter's descriptors.
            opened = os.listdir(f"/proc/{cloud.daemon.pid}/fd")
            for number in ("1", "2"):
                assert os.readlink(f"/proc/{cloud.daemon.pid}/fd/{number}") == f"{cloud.folder}/daemon.log"
            assert os.readlink(f"/proc/{cloud.daemon.pid}/fd/0") == "/dev/null"
            assert os.readlink(f"/proc/{cloud.daemon.pid}/cwd") == "/"
            assert len(opened) < 32

    def test_it_is_alive_as_long_as_its_lock_is_held(self):
        with open_cloud() as cloud:
            assert rendezvous.is_alive(cloud.folder)
            read = rendezvous.read(cloud.folder)
            assert read is not None
            assert (read.url, read.pid) == (cloud.url, cloud.process.pid)
            cloud.process.kill()
            cloud.process.wait()
            assert not rendezvous.is_alive(cloud.folder)

    def test_a_second_daemon_of_the_folder_does_not_start(self, monkeypatch):
        from vmnest.local import daemon

        monkeypatch.setattr(daemon, "_LOCK_SECONDS", 0.1)
        with open_cloud() as cloud:
            lines = []
            config = daemon.Config(folder=cloud.folder, environ={})
            status = daemon.run(config, ready=lines.append, select_driver=lambda **options: pytest.fail("not reached"))
            assert status != 0
            with pytest.raises(errors.VmnestError, match="previous local daemon"):
                rendezvous.parse_ready(lines[0])

    def test_port_and_keys_are_kept_over_a_restart(self):
        with open_cloud() as cloud:
            before = (cloud.url, tuple(cloud.keys))
            end_daemon(cloud.process, cloud.folder)
            assert rendezvous.read(cloud.folder) is None
            process, line = start_daemon(cloud.folder)
            try:
                assert (rendezvous.parse_ready(line).url, tuple(rendezvous.keys(cloud.folder))) == before
            finally:
                end_daemon(process, cloud.folder)

    def test_it_ends_when_nothing_runs_and_only_then(self):
        with open_cloud(arguments=["--idle-seconds", "0.4"]) as cloud, contextlib.ExitStack() as stack:
            with rendezvous.start_lock(cloud.folder, deadline.Deadline(5)):  # it stays until the MicroVM is there
                started = stack.enter_context(running_microvm(cloud))
            with pytest.raises(subprocess.TimeoutExpired):
                cloud.process.wait(1.5)
            cloud.client().terminate_microvm(microvmIdentifier=started["microvmId"])
            assert cloud.process.wait(WAIT_SECONDS) == 0
            assert rendezvous.read(cloud.folder) is None
            assert not rendezvous.is_alive(cloud.folder)

    def test_it_does_not_leave_while_somebody_is_coming(self):
        with open_cloud(arguments=["--idle-seconds", "0.2"]) as cloud:
            with rendezvous.start_lock(cloud.folder, deadline.Deadline(5)), pytest.raises(subprocess.TimeoutExpired):
                cloud.process.wait(1)
            assert cloud.process.wait(WAIT_SECONDS) == 0

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_and_everything_it_runs(self, number):
        with open_cloud() as cloud, contextlib.ExitStack() as stack:
            started = stack.enter_context(running_microvm(cloud))
            cloud.process.send_signal(number)
            assert cloud.process.wait(WAIT_SECONDS) == 0
            assert living_processes(cloud.folder) == []
            assert os.listdir(os.path.join(cloud.folder, "vms")) == []
            with pytest.raises(ConnectionRefusedError):
                ask(started, "GET", "/", headers={})

    def test_it_starts_where_nothing_can_be_imported_from(self, tmp_path):
        """A starter may spell out the path and vanish."""
        with open_cloud(PYTHONPATH=str(ROOT)) as cloud:
            assert cloud.client().list_microvms()["items"] == []

    def test_an_error_of_the_start_reaches_the_starter(self, tmp_path):
        (tmp_path / "keys.json").write_text("{}")
        process, line = start_daemon(str(tmp_path))
        assert process.wait(WAIT_SECONDS) == 1
        with pytest.raises(errors.StateFileError, match=r"keys\.json is damaged"):
            rendezvous.parse_ready(line)

    def test_its_own_calls_tell_of_it_and_end_it(self):
        with open_cloud() as cloud:
            status, told = signed(cloud, "GET", rendezvous.STATUS_PATH)
            assert (status, told["pid"], told["microvms"]) == (200, cloud.process.pid, {})
            assert signed(cloud, "POST", rendezvous.SHUTDOWN_PATH) == (200, {})
            assert cloud.process.wait(WAIT_SECONDS) == 0


@contextlib.contextmanager
def running_microvm(cloud):
    """A MicroVM that answers, and is not ended by us."""
    started = cloud.client().run_microvm(imageIdentifier=IMAGE)
    token = mint(cloud, started, 8080)
    end = time.monotonic() + WAIT_SECONDS
    while ask(started, "GET", "/healthz", headers=token)[0] != 200:
        assert time.monotonic() < end
    yield started


def signed(cloud: LocalCloud, method: str, path: str):
    """A request signed as boto3 would."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    asked = AWSRequest(method=method, url=cloud.url + path, data=b"")
    SigV4Auth(Credentials(*cloud.keys), "lambda", "us-east-1").add_auth(asked)
    netloc = urllib.parse.urlsplit(cloud.url).netloc
    with contextlib.closing(http.client.HTTPConnection(netloc, timeout=WAIT_SECONDS)) as connection:
        connection.request(method, path, b"", dict(asked.headers.items()))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def test_the_module_says_how_it_is_started():
    done = subprocess.run([sys.executable, "-m", "vmnest.local", "--help"], cwd=ROOT, capture_output=True, check=True)
    assert b"--ready-fd" in done.stdout
