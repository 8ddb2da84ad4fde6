"""What instructions amount to."""

from __future__ import annotations

import pytest

from vmnest.local import dockerfile, dockerfile_stages
from vmnest.local.dockerfile_actions import Copy, MakeFolder, Run, Script, evaluate


def read(text: str, *, path: str = "/bin") -> list[Script]:
    return evaluate(dockerfile_stages.plan(dockerfile.parse(text)), path=path)


def last(text: str) -> Script:
    return read(f"FROM x\n{text}")[-1]


def copied(text: str) -> Copy:
    action = last(text).actions[-1]
    assert isinstance(action, Copy)
    return action


def ran(text: str) -> Run:
    action = last(text).actions[-1]
    assert isinstance(action, Run)
    return action


def refuse(text: str) -> str:
    with pytest.raises(dockerfile.DockerfileError) as caught:
        read(f"FROM x\n{text}")
    assert caught.value.line == 1 + len(text.split("\n"))
    return caught.value.message


def test_a_command_has_a_shell_or_none() -> None:
    assert ran("RUN a $x").command == ("/bin/sh", "-c", "a $x")
    assert ran('RUN ["a", "$x"]').command == ("a", "$x")
    assert ran('SHELL ["/bin/bash", "-ec"]\nRUN a').command == ("/bin/bash", "-ec", "a")


def test_a_command_sees_arguments_and_the_environment() -> None:
    text = "ARG A=1\nARG B\nARG C=c\nENV C=3 D=4\nRUN x"
    assert ran(text).environment == {"A": "1", "C": "3", "D": "4"}


def test_global_arguments_are_seen_where_they_are_named() -> None:
    script = read("ARG A=1\nARG B=2\nFROM x\nARG A\nARG C=$A$B\nRUN x")[0]
    assert isinstance(script.actions[0], Run)
    assert script.actions[0].environment == {"A": "1", "C": "1"}


def test_an_environment_sees_what_was_before_its_line() -> None:
    script = last("ENV A=1 B=$A\nENV A=2 B=$A C='$A' D=\"$A b\" PATH=/x:$PATH\nENV OLD some $A text")
    assert script.environment == {"A": "2", "B": "1", "C": "$A", "D": "1 b", "PATH": "/x:/bin", "OLD": "some 2 text"}


def test_workdirs_lead_on_and_are_made() -> None:
    script = last("WORKDIR /a\nENV B=b\nWORKDIR $B/../c/.\nRUN x")
    assert [action.path for action in script.actions if isinstance(action, MakeFolder)] == ["/a", "/a/c"]
    assert script.workdir == "/a/c"
    assert isinstance(script.actions[-1], Run)
    assert script.actions[-1].workdir == "/a/c"


@pytest.mark.parametrize(
    ("text", "sources", "target", "is_folder"),
    [
        ("COPY a /b", ("a",), "/b", False),
        ("COPY a b", ("a",), "/w/b", False),
        ("COPY a /b/", ("a",), "/b", True),
        ("COPY a .", ("a",), "/w", True),
        ("COPY a ./", ("a",), "/w", True),
        ("COPY a b /c", ("a", "b"), "/c", True),
        ('COPY ["a b", "/c d/"]', ("a b",), "/c d", True),
        ("COPY $X-* ${X}/", ("y-*",), "/w/y", True),
    ],
)
def test_copies_have_sources_and_a_target(text: str, sources: tuple[str, ...], target: str, is_folder: bool) -> None:
    found = copied(f"ENV X=y\nWORKDIR /w\n{text}")
    assert (found.sources, found.target, found.is_folder) == (sources, target, is_folder)
    assert (found.mode, found.stage, found.unpacks) == (None, None, False)


def test_copies_have_modes_and_add_unpacks() -> None:
    assert copied("COPY --chmod=0750 --chown=root:root a b").mode == 0o750
    assert copied("ADD a b").unpacks


def test_a_copy_comes_from_an_earlier_stage() -> None:
    scripts = read("FROM a AS one\nFROM b\nCOPY --from=one /x y\nFROM c\nCOPY --from=1 /x y")
    (found,) = scripts[-1].actions
    assert isinstance(found, Copy)
    assert found.stage is not None
    assert found.stage.number == 1


def test_only_the_stages_that_are_needed_are_there() -> None:
    text = "FROM a AS one\nRUN 1\nFROM b AS two\nRUN 2\nFROM one AS three\nRUN 3\nFROM c\nCOPY --from=three / /\n"
    assert [script.stage.number for script in read(text)] == [0, 2, 3]


def test_a_stage_goes_on_where_its_parent_was() -> None:
    text = "FROM a AS one\nENV A=1\nWORKDIR /w\nEXPOSE 1\nCMD one\nRUN 1\nFROM one\nENV B=$A\nEXPOSE 2\nRUN 2"
    first, second = read(text)
    assert second.environment == {"A": "1", "B": "1"}
    assert second.exposed == ["1/tcp", "2/tcp"]
    assert second.command == ("/bin/sh", "-c", "one")
    assert [action.line for action in second.actions] == [10]
    assert (first.environment, first.exposed) == ({"A": "1"}, ["1/tcp"])


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("CMD a", ("/bin/sh", "-c", "a")),
        ('CMD ["a", "b"]', ("a", "b")),
        ('ENTRYPOINT ["a"]\nCMD ["b"]', ("a", "b")),
        ('CMD ["b"]\nENTRYPOINT ["a"]', ("a", "b")),
        ('CMD ["b"]\nCMD ["c"]', ("c",)),
        ('ENTRYPOINT ["a"]\nENTRYPOINT []\nCMD ["c"]', ("c",)),
        ("LABEL a=b", ()),
    ],
)
def test_entry_point_and_command_make_the_main_process(text: str, command: tuple[str, ...]) -> None:
    assert last(text).command == command


def test_a_new_entry_point_drops_the_parents_command() -> None:
    assert read('FROM a AS one\nCMD ["x"]\nFROM one\nENTRYPOINT ["y"]')[-1].command == ("y",)


def test_a_file_that_would_fill_the_memory_is_refused() -> None:
    assert "characters" in refuse("\n".join([f"ENV A={'x' * 100}", *["ENV A=$A$A$A$A$A$A$A$A$A$A"] * 4]))
    assert "1000 variables" in refuse("ENV " + " ".join(f"a{number}=x" for number in range(1001)))
    assert "1000 variables" in refuse(
        "\n".join([f"ENV a={'x' * 100_000}", "ENV b=$a c=$a d=$a e=$a f=$a g=$a", "ENV h=$a i=$a j=$a k=$a l=$a"])
    )
    assert "longer name" in refuse("\n".join(["WORKDIR " + "x" * 200] * 21))
    assert "instructions change files" in refuse("\n".join(["RUN x"] * 1001))


def test_the_stages_together_have_so_many_actions() -> None:
    with pytest.raises(dockerfile.DockerfileError) as caught:
        read("\n".join(["FROM x", *["RUN x"] * 600, "FROM x", *["RUN x"] * 401]))
    assert caught.value.line == 1003


def test_ports_are_exposed() -> None:
    assert last("ENV P=90\nEXPOSE 80 $P 53/udp 7000-7010").exposed == ["80/tcp", "90/tcp", "53/udp", "7000-7010/tcp"]


@pytest.mark.parametrize("user", ["root", "0", "sandbox", "1000:1000", "root:root"])
def test_the_one_user_can_be_named(user: str) -> None:
    assert last(f"USER {user}").notes == [f"Line 2: USER {user} is the one user that a local sandbox has."]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ARG U=app\nUSER $U", "a local sandbox has one user, so 'app' cannot be another"),
        ("COPY --chown=app a b", "a local sandbox has one user, so 'app' cannot be another"),
        ("COPY a", "COPY needs a source and a target"),
        ("COPY --chmod=u+x a b", "COPY --chmod takes an octal mode here, not 'u+x'"),
        ("COPY --from=nginx a b", "COPY --from takes an earlier stage here, and 'nginx' is none"),
        ("COPY --from=0 a b", "COPY --from takes an earlier stage here, and '0' is none"),
        ("ADD https://example.com/x /x", "ADD takes files of the build directory here, not https://example.com/x"),
        ("ADD git@example.com:x /x", "ADD takes files of the build directory here, not git@example.com:x"),
        ("EXPOSE http", "EXPOSE takes ports, as 8080 or 8080/tcp, not 'http'"),
        ("ENV a", "ENV a needs a value"),
        ("ENV a=1 b", "ENV takes NAME=value, not 'b'"),
        ("LABEL a=1 =2", "LABEL takes NAME=value, not '=2'"),
        ("ENV a='b", "the quote ' is not closed"),
        ("WORKDIR ${x", "the variable x is used in a way that is not known, in '${x'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_line(text: str, message: str) -> None:
    assert refuse(text) == message
