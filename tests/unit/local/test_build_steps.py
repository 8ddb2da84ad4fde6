"""Instructions, carried out in real sandboxes."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from tests.support.artifacts import link
from tests.support.building import Builds
from vmnest.local import build_steps

END = '\nCMD ["sleep", "100"]\n'


def steps(builds: Builds) -> list[str]:
    return [line for line in builds.lines if line.startswith(("Step", "  (made"))]


def test_a_command_changes_files_for_those_behind_it(builds: Builds) -> None:
    text = "FROM x\nRUN echo a > /opt/a\nRUN cat /opt/a && mv /opt/a /usr/local/b && echo b >> /usr/local/b"
    built = builds.build(text + END)
    assert "  a" in builds.lines
    assert builds.show(built, "cat /usr/local/b; ls /opt/a 2>&1 | wc -l").split() == ["a", "b", "1"]
    assert len(built.layers) == 2


def test_a_command_has_its_environment_shell_and_directory(builds: Builds) -> None:
    text = (
        'FROM x\nARG A=1\nENV B=2\nWORKDIR /srv/x\nSHELL ["/bin/bash", "-c"]\nRUN echo $A $B $PWD ${BASH_VERSION:+bash}'
    )
    builds.build(text + END)
    assert "  1 2 /srv/x bash" in builds.lines


def test_steps_are_numbered_and_bases_are_told(builds: Builds) -> None:
    builds.build("FROM python:3.12\n\nRUN true\nWORKDIR /w" + END)
    assert "Line 1: FROM python:3.12: taken as this machine's own programs." in builds.lines
    assert steps(builds) == ["Step 1/2, line 3: RUN true", "Step 2/2, line 4: WORKDIR /w"]


FILES = {
    "run.sh": ("#!/bin/sh\necho ran\n", stat.S_IFREG | 0o755),
    "secret": ("s", stat.S_IFREG | 0o600),
    "src/one.txt": "one",
    "src/.hidden": "hidden",
    "src/link": link("one.txt"),
    "to_src": link("src"),
}


def test_files_are_copied_as_they_are(builds: Builds) -> None:
    text = "FROM x\nWORKDIR /w\nCOPY run.sh secret /usr/local/bin/\nCOPY to_src in\nCOPY --chmod=0711 run.sh ."
    built = builds.build(text + END, FILES)
    script = "run.sh; stat -c %a /usr/local/bin/secret run.sh; ls -A in; readlink in/link; stat -c %U in/one.txt"
    assert builds.show(built, script).split() == [
        "ran",
        "600",
        "711",
        ".hidden",
        "link",
        "one.txt",
        "one.txt",
        "sandbox",
    ]


def test_a_pattern_may_mean_very_many_files(builds: Builds) -> None:
    files = {f"a-name-of-some-length-{number}.txt": "" for number in range(4000)}
    built = builds.build("FROM x\nCOPY *.txt /opt/all/" + END, files)
    assert builds.show(built, "ls /opt/all | wc -l") == "4000"


def test_copies_go_through_the_links_of_the_image(builds: Builds) -> None:
    built = builds.build(
        "FROM x\nRUN mkdir /opt/real && ln -s /opt/real /srv/link\nCOPY run.sh /srv/link/" + END, FILES
    )
    assert builds.show(built, "/opt/real/run.sh") == "ran"


def test_archives_are_unpacked_by_add_only(builds: Builds) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        member = tarfile.TarInfo("inside")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    built = builds.build("FROM x\nADD a.tgz /one/\nCOPY a.tgz /two/" + END, {"a.tgz": made.getvalue()})
    assert builds.show(built, "cat /one/inside; echo; ls /two").split() == ["x", "a.tgz"]


def test_files_come_from_other_stages(builds: Builds) -> None:
    text = """\
FROM x AS build
COPY src /src
RUN mkdir -p /out/bin && cat /src/one.txt > /out/bin/tool && ln -s tool /out/bin/alias && touch /unwanted
FROM y
COPY --from=build /out /opt/out
COPY --from=build /src/*.txt /texts/
"""
    built = builds.build(text + END, FILES)
    script = "cat /opt/out/bin/alias; echo; ls /texts; ls -d /unwanted /src /.sandbox/context 2>/dev/null | wc -l"
    assert builds.show(built, script).split() == ["one", "one.txt", "0"]


def test_a_stage_goes_on_from_another(builds: Builds) -> None:
    built = builds.build("FROM x AS base\nRUN echo 1 > /opt/1\nFROM base\nRUN echo 2 > /opt/2" + END)
    assert builds.show(built, "cat /opt/1 /opt/2").split() == ["1", "2"]


def test_stages_that_nobody_needs_are_not_built(builds: Builds) -> None:
    builds.build("FROM x\nRUN false\nFROM y\nRUN true" + END)
    assert steps(builds) == ["Step 1/1, line 4: RUN true"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("RUN true\nRUN sh -c 'exit 7'", "Line 3: the command ended with exit code 7."),
        ("RUN kill -9 $$", "Line 2: the command was ended by signal 9."),
        ("COPY missing /x", "Line 2: there is no 'missing' in the build directory."),
        ("COPY m* /x", "Line 2: nothing in the build directory matches 'm*'."),
        ("COPY *e* /x", "Line 2: several sources need a directory as target: end /x with a /."),
        ("COPY src /usr/bin/env", "Line 2: the command ended with exit code 1."),
        ("FROM y AS a\nFROM z\nCOPY --from=a /missing /x", "Line 4: the command ended with exit code 1."),
    ],
)
def test_a_failed_step_tells_its_line(builds: Builds, text: str, reason: str) -> None:
    failed = builds.fail(f"FROM x\n{text}{END}", {**FILES, "secret2": ""})
    assert failed.code == "CONTAINER_BUILD_FAILED"
    assert failed.reason == f"The container image build failed. {reason}"
    assert builds.lines[-1] == failed.reason


def test_a_program_that_is_not_there_is_told_as_such(builds: Builds) -> None:
    failed = builds.fail('FROM x\nRUN ["no-such-program"]' + END)
    assert failed.reason.startswith("The container image build failed. Line 2: no-such-program cannot be run: ")


def test_what_uses_up_the_disk_is_told_as_such(builds: Builds) -> None:
    failed = builds.fail("FROM x\nRUN for i in 1 2 3 4; do head -c 100M /dev/zero > /opt/$i; done; sleep 30" + END)
    assert failed.code == "DISK_STORAGE_FULL"
    assert "Line 2: the command used up the disk" in failed.reason


class TestCache:
    def test_a_second_build_makes_nothing(self, builds: Builds) -> None:
        text = "FROM x\nRUN echo a > /opt/a\nCOPY src /src\nWORKDIR /w" + END
        first = builds.build(text, FILES)
        assert builds.build(text, FILES).layers == first.layers
        assert builds.lines.count("  (made before)") == 3

    @pytest.mark.parametrize(
        ("text", "files", "made"),
        [
            ("FROM x\nRUN echo a > /opt/a\nCOPY src /src\nRUN echo c > /opt/c", FILES, 0),
            ("FROM y\nRUN echo a > /opt/a\nCOPY src /src\nRUN echo c > /opt/c", {**FILES, "more": ""}, 0),
            ("FROM x\nRUN echo b > /opt/a\nCOPY src /src\nRUN echo c > /opt/c", FILES, 3),
            ("FROM x\nENV A=1\nRUN echo a > /opt/a\nCOPY src /src\nRUN echo c > /opt/c", FILES, 3),
            ("FROM x\nRUN echo a > /opt/a\nCOPY src /src\nRUN echo c > /opt/c", {**FILES, "src/one.txt": "1"}, 2),
            ("FROM x\nRUN echo a > /opt/a\nCOPY src /src/\nENV B=1\nRUN echo c > /opt/c", FILES, 2),
        ],
    )
    def test_only_what_changed_and_what_lies_on_it_is_made_again(
        self, builds: Builds, text: str, files: dict[str, str], made: int
    ) -> None:
        builds.build("FROM x\nRUN echo a > /opt/a\nCOPY src /src\nRUN echo c > /opt/c" + END, FILES)
        builds.build(text + END, files)
        assert 3 - builds.lines.count("  (made before)") == made

    def test_a_failed_step_is_made_again_and_those_before_it_are_not(self, builds: Builds) -> None:
        text = "FROM x\nRUN echo a > /opt/a\nRUN exit 1"
        for _ in range(2):
            builds.fail(text + END)
        assert builds.lines.count("  (made before)") == 1

    def test_what_may_be_reached_belongs_to_a_command(self, builds: Builds) -> None:
        text = "FROM x\nWORKDIR /w\nRUN exit 1"
        builds.fail(text + END)
        builds.fail(text + END, egress_allow=("example.com",))
        assert builds.lines.count("  (made before)") == 1


def test_a_command_reaches_what_is_allowed_through_a_gate(builds: Builds) -> None:
    program = "import socket; print(socket.create_connection(('127.0.0.1', 3128)).recv(9))"
    text = f'FROM x\nRUN python3 -c "{program}" && exit 1'
    builds.fail(text + END, egress_allow=("example.com",))
    assert "  b'let out'" in builds.lines
    assert [(gate.allowed, gate.is_closed) for gate in builds.gates] == [(("example.com",), True)]


def test_without_anything_allowed_there_is_no_way_out(builds: Builds) -> None:
    builds.build('FROM x\nRUN echo "<$HTTP_PROXY>"' + END)
    assert "  <>" in builds.lines
    assert builds.gates == []


def test_an_image_has_a_bounded_number_of_layers(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_steps, "MAX_LAYERS", 2)
    failed = builds.fail("FROM x\n" + "".join(f"RUN touch /opt/{number}\n" for number in range(3)) + END)
    assert failed.reason.endswith("Line 4: an image has at most 2 layers: join some instructions.")


def test_the_context_is_laid_where_sandboxes_can_read_it(tmp_path: Path) -> None:
    place = build_steps.lay_context(str(tmp_path / "layer"), owner=None)
    assert place == str(tmp_path / "layer" / "%root" / ".sandbox" / "context")
    assert {os.stat(path).st_mode & 0o777 for path, _, _ in os.walk(tmp_path / "layer")} == {0o755}


def test_no_link_of_a_sandbox_leads_to_the_host(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    inside = tmp_path / "layer" / "%root" / ".sandbox" / "context"
    inside.mkdir(parents=True)
    (inside / "0").mkdir()
    (inside / "0" / "link").symlink_to(tmp_path / "secret")
    (inside / "0" / "folder").mkdir()
    (inside / "1").symlink_to(tmp_path)
    assert build_steps.list_gathered(str(tmp_path / "layer"), "0") == [("folder", True), ("link", False)]
    with pytest.raises(OSError):
        build_steps.list_gathered(str(tmp_path / "layer"), "1")


def test_a_stage_that_tampers_with_our_program_shows_nothing_of_the_host(builds: Builds) -> None:
    text = """\
FROM x AS evil
RUN rm /.sandbox/bin/python && printf '#!/bin/sh\\nln -s / /.sandbox/context\\n' > /.sandbox/bin/python \\
    && chmod 755 /.sandbox/bin/python
FROM y
COPY --from=evil /x /y
"""
    reason = builds.fail(text + END).reason
    assert reason == "The container image build failed. Line 5: what was gathered cannot be read: Not a directory."
