"""The manual's first examples do what it says."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud, open_cloud
from tests.support.paths import AWS_CLI, ROOT
from tests.support.terminals import Terminal
from vmnest.infra import config

TEXT = (ROOT / "README.rst").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The part of the manual below a heading, up to the next heading of its kind or a higher one."""
    underline = r"\n(=+|-+)\n"
    begin = re.search(rf"^{title}{underline}", TEXT, re.MULTILINE)
    assert begin is not None
    ends = re.finditer(rf"^.+{underline}", TEXT[begin.end() :], re.MULTILINE)
    end = next(each for each in ends if each[1][0] in {"=", begin[1][0]})
    return TEXT[begin.end() : begin.end() + end.start()]


HERE = section("On this machine")
ON_AWS = section("On AWS")
NETWORKING = section("Networking")
LIFE = section("The life of a sandbox")
IMAGES = section("Images of your own").partition("Trying the guest without AWS\n---")[0]
GUEST = section("Trying the guest without AWS")


# What goes on until somebody ends it, wants a terminal, or has no meaning without AWS.
STAYS = re.compile(r" -it | --follow |^vmnest forward |^vmnest create closed ")
TOUR = ("exec", "shell", "attach", "forward", "cp", "fs ls", "fs write", "fs chmod", "logs", "ls", "metrics", "prune")
BEFORE = """
mkdir -p project/dist project/.git secrets
echo note > notes.txt; echo 1,2 > data.csv; gzip -c data.csv > data.gz
touch project/.git/config project/a.pyc project/dist/wheel
tar -cf project.tar project
vmnest --local create demo
vmnest --local create other --label team=data
vmnest cp notes.txt demo:report.pdf
vmnest cp -r secrets demo:
"""


def blocks(kind: str, part: str) -> list[str]:
    """The literal blocks of a part, without their indentation."""
    found = re.findall(rf"^\.\. code-block:: {kind}\n\n((?: {{4}}.*\n|\n)+)", part, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in found]


def lines_of(part: str) -> list[str]:
    """The command lines of a part, those that are continued as one."""
    return [
        each for block in blocks("console", part) for each in re.findall(r"^\$ (.*(?:\n  .*)*)", block, re.MULTILINE)
    ]


def type_lines(part: str, environ: dict[str, str], *, folder: Path) -> list[str]:
    """What is printed when the part's command lines are typed in a folder one after another, without a failure."""
    lines = [line for line in lines_of(part) if not STAYS.search(line)]
    return type_script("\n".join(lines), environ, folder=folder)


def type_script(script: str, environ: dict[str, str], *, folder: Path) -> list[str]:
    """What it prints, without a failure, at a shell that knows ``vmnest``, and ``lpr``, which prints."""
    known = f'vmnest() {{ {sys.executable} -m vmnest "$@"; }}\nlpr() {{ cat; }}\nset -e\n'
    command = ["sh", "-c", known + script]
    done = subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout + done.stderr).splitlines()


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.fixture
def environ(shared_cloud: LocalCloud, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder,
        "AGENT_SANDBOX_STATE": str(tmp_path / "state.json"),
        "AGENT_SANDBOX_INFRA_STATE": str(tmp_path / "infra-state.json"),
        "PYTHONPATH": str(ROOT),
    }


def test_the_python_example_sorts_numbers_in_a_sandbox(environ: dict[str, str]) -> None:
    (example,) = blocks("python", HERE)
    done = subprocess.run([sys.executable, "-c", example], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0 1\n2\n3\n\n", "")


def test_the_first_command_lines_work_one_after_another(environ: dict[str, str], tmp_path: Path) -> None:
    answers = type_lines(HERE, environ, folder=tmp_path)
    assert answers[:2] == ["hello", "demo"]
    assert "data" in answers  # what was copied
    assert answers[-1].split()[::2] == ["demo", "ended"]


def test_the_command_lines_for_aws_work_in_the_local_cloud(environ: dict[str, str], tmp_path: Path) -> None:
    answers = type_lines(ON_AWS, {**environ, "AGENT_SANDBOX_TARGET": "local"}, folder=tmp_path)
    assert "vmnest/dev on this machine: 4 to create" in answers  # as the manual shows it
    assert [line for line in answers if line.startswith("Linux ")]
    assert [line for line in answers if line.split()[:2] == ["demo", "RUNNING"]]
    assert [line for line in answers if line.split()[::2] == ["demo", "ended"]]
    assert "{}" not in answers


def test_the_examples_of_commands_work_one_after_another(environ: dict[str, str], tmp_path: Path) -> None:
    type_script(BEFORE, environ, folder=tmp_path)
    seen = {each: type_lines(section(f"vmnest {each}"), environ, folder=tmp_path) for each in TOUR}
    assert "built" in seen["attach"]
    assert (tmp_path / "dist" / "wheel").exists()
    assert "note" in seen["cp"]  # what went to the printer
    assert [line for line in seen["metrics"] if line.startswith("memory ")]
    assert [line for line in seen["logs"] if "agentd: process" in line]
    assert [line for line in seen["ls"] if line.split()[::2] == ["other", "ended"]]
    assert type_lines(NETWORKING, environ, folder=tmp_path) == ["open"]
    use_what_stays(environ, folder=tmp_path)
    type_script("vmnest rm demo open", environ, folder=tmp_path)


def use_what_stays(environ: dict[str, str], *, folder: Path) -> None:
    """Type at a terminal what goes on until somebody ends it, and end it."""
    (interpret,) = (line for line in lines_of(section("vmnest exec")) if " -it " in line)
    with typed(interpret, environ, folder=folder) as terminal:
        terminal.read_until(b">>> ")
        terminal.type(b"print(6 * 7)\r")
        terminal.read_until(b"\n42")
        terminal.type(b"\x04")
        assert terminal.wait() == 0
    (follow,) = (line for line in lines_of(section("vmnest logs")) if "--follow" in line)
    with typed(follow, environ, folder=folder) as terminal:
        terminal.read_until(b"agentd: process")
        terminal.type(b"\x03")
        assert terminal.wait() == 130
    for line in (line for line in lines_of(section("vmnest forward")) if line.startswith("vmnest forward ")):
        with typed(with_free_ports(line), environ, folder=folder) as terminal:
            first = terminal.read_until(b" -> demo:8000").rpartition(b"http://localhost:")[2]
            with urllib.request.urlopen(f"http://127.0.0.1:{int(first.split()[0])}/", timeout=30) as page:
                assert b"Directory listing" in page.read()
            terminal.type(b"\x03")
            assert terminal.wait() == 0


def with_free_ports(line: str) -> str:
    """A ``forward`` to ports that are free on this machine, where the manual's may not be."""
    without = re.sub(r" -l \d+", "", line)
    return re.sub(r"(-r [\d-]+)(:\d+)?", r"\1:0", without)


def typed(line: str, environ: dict[str, str], *, folder: Path) -> Terminal:
    """A line at a terminal, whose shell knows ``vmnest``."""
    words = ["sh", "-c", line.replace("vmnest", f"exec {sys.executable} -m vmnest", 1)]
    return Terminal(words, env={**environ, "TERM": "xterm"}, cwd=folder)


def test_the_connector_in_its_sandbox_yaml_is_understood(tmp_path: Path) -> None:
    (text,) = blocks("yaml", NETWORKING)
    (tmp_path / "sandbox.yaml").write_text(text)
    (stack,) = config.load(cwd=str(tmp_path), environ={})
    assert stack.egress is not None
    assert list(stack.egress.subnet_ids) == ["private-a", "private-b"]


def test_the_examples_of_the_python_library_work(environ: dict[str, str]) -> None:
    first, second = (block.replace('"make"', '"echo"') for block in blocks("python", section("Python")))
    both = f"{first}\nwith Sandbox.create(local=True) as sandbox:\n{textwrap.indent(second, '    ')}"
    own = {**environ, "AGENT_SANDBOX_TARGET": "local"}
    done = subprocess.run([sys.executable, "-c", both], env=own, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.splitlines()
    assert answers[0] == "0 None test"
    assert answers[2:4] == ["stdout all", "0"]
    assert sum("Directory listing" in answer for answer in answers) >= 2  # by curl there, and through the port here
    assert answers[-1] == "42"


def test_an_image_of_ones_own_is_built_as_is_said_and_used(environ: dict[str, str], tmp_path: Path) -> None:
    answers = type_lines(IMAGES, environ, folder=tmp_path)
    assert "python3" in answers  # of /opt/venv/bin
    assert [line for line in answers if line.split()[::2] == ["tuned", "ended"]]


@pytest.mark.skipif(not AWS_CLI.exists(), reason="needs the AWS CLI that tools/test installs")
def test_the_aws_cli_works_with_the_local_cloud_as_is_said(environ: dict[str, str], tmp_path: Path) -> None:
    lines = [
        f'aws() {{ {AWS_CLI} "$@"; }}; export AWS_CONFIG_FILE=none AWS_SHARED_CREDENTIALS_FILE=none',
        f"vmnest image init made; (cd made; {sys.executable} -m zipfile -c ../code.zip Dockerfile agentd)",
        *lines_of(section("With other programs")),
    ]
    script = "\n".join(lines).replace(" ID ", ' "$(vmnest --local ls --all -q)" ')
    with open_cloud() as cloud:
        answers = type_script(script, {**environ, "AGENT_SANDBOX_LOCAL_DIR": cloud.folder}, folder=tmp_path)
    assert "make_bucket: my-bucket" in answers
    assert [line for line in answers if "agentd: hook run: 200" in line]  # of the log
    assert [line for line in answers if '"state": "CREAT' in line]  # of the image
    assert [line for line in answers if '{"exit_code":0,' in line]  # by curl


def test_the_guest_can_be_tried_without_aws(environ: dict[str, str], tmp_path: Path) -> None:
    run_in_docker, serve, ask = blocks("sh", GUEST)
    assert "docker run" in run_in_docker
    ports = {"8080": free_port(), "9000": free_port()}
    settings = {"AGENTD_PORT": ports["8080"], "AGENTD_HOOK_PORT": ports["9000"]}
    own = {**environ, **settings, "AGENTD_IDENTITY_PATH": str(tmp_path / "identity")}
    line = serve.strip().replace("python3", f"exec {sys.executable}")
    with subprocess.Popen(["sh", "-c", line], cwd=ROOT, env=own, stderr=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stderr is not None
            assert " listens on " in agent.stderr.readline()
            script = "set -e\n" + re.sub(
                "8080|9000", lambda match: ports[match[0]], ask.replace("curl -sS", "curl -sSf")
            )
            done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        finally:
            agent.terminate()
    health, answer = (json.loads(line) for line in done.stdout.replace("}{", "}\n{").splitlines())
    assert health["status"] == "ok"
    assert (answer["exit_code"], base64.b64decode(answer["stdout"])) == (0, b"2\n")


def test_the_command_lines_of_a_sandboxs_life_do_what_is_said(environ: dict[str, str], tmp_path: Path) -> None:
    made, stopped, state, sleeps, started, heads, row, report, removed, *refusal = type_lines(
        LIFE, {**environ, "AGENT_SANDBOX_TARGET": "local"}, folder=tmp_path
    )
    assert (made, stopped, state, sleeps) == ("job", "job", "SUSPENDED", "status 125: it sleeps")
    assert (started, report.split()[-1], removed.split()[::2]) == ("job", "RESULT", ["job", "ended"])
    assert heads.split()[:2] == ["NAME", "STATE"]
    assert row.split()[:2] == ["job", "RUNNING"]
    assert refusal[0].startswith("vmnest: sandbox job is suspended")
