"""The environment of a command, from three kinds of sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.cli import variables


def resolve(*given: str, secrets: tuple[str, ...] = (), files: tuple[Path, ...] = (), **environ: str) -> dict[str, str]:
    return variables.resolve(given, secrets=secrets, files=map(str, files), environ=environ)


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "env"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# -- --env -------------------------------------------------------------------------------------------------------------


def test_variables_are_given_with_their_value_or_taken_from_here() -> None:
    given = ["A=1", "B", "C=", "D=a=b\n'\"$HOME", "A=2"]
    assert resolve(*given, B="here") == {"A": "2", "B": "here", "C": "", "D": "a=b\n'\"$HOME"}


@pytest.mark.parametrize("text", ["", "=1", "A\0=1", "A=\0"])
def test_what_is_no_variable(text: str) -> None:
    with pytest.raises(errors.UsageError, match="NAME"):
        resolve(text)


def test_a_variable_that_is_not_set_here_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="no such variable"):
        resolve("NOT_SET")


@pytest.mark.parametrize("text", ["TOKEN", "TOKEN=hunter2\udcff", "\udcffTOKEN=hunter2"])
def test_a_variable_that_is_no_text_is_refused_and_its_value_not_repeated(text: str) -> None:
    with pytest.raises(errors.UsageError, match="TOKEN: not UTF-8") as caught:
        resolve(text, TOKEN="hunter2\udcff")
    assert "hunter2" not in str(caught.value.to_wire())


# -- --secret ----------------------------------------------------------------------------------------------------------


def test_a_secret_has_the_value_that_it_has_here() -> None:
    assert resolve(secrets=("TOKEN", "EMPTY"), TOKEN="a=b\n c", EMPTY="", OTHER="x") == {
        "TOKEN": "a=b\n c",
        "EMPTY": "",
    }


@pytest.mark.parametrize("name", ["TOKEN", "", "=hunter2", "TOKEN=hunter2", "TOKEN\0hunter2"])
def test_a_secret_that_is_none_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(errors.UsageError, match="--secret") as caught:
        resolve(secrets=(name,))
    assert "hunter2" not in str(caught.value.to_wire())


def test_a_secret_that_is_no_text_is_refused_and_not_shown() -> None:
    with pytest.raises(errors.UsageError, match="TOKEN: its value is not UTF-8") as caught:
        resolve(secrets=("TOKEN",), TOKEN="hunter2\udcff")
    assert "hunter2" not in str(caught.value.to_wire())


# -- --env-file --------------------------------------------------------------------------------------------------------


def test_a_file_is_read_as_docker_reads_it(tmp_path: Path) -> None:
    content = (
        '\ufeffA=1\n# comment\n  # another\n\n  B=  two  \nC="q" # no comment\nD=\nHERE\nABSENT\nE=a=b\r\nA=2\nF=last'
    )
    assert resolve(files=(write(tmp_path, content),), HERE="here") == {
        "A": "2",
        "B": "  two  ",
        "C": '"q" # no comment',
        "D": "",
        "HERE": "here",
        "E": "a=b",
        "F": "last",
    }


def test_a_later_source_is_stronger(tmp_path: Path) -> None:
    first = write(tmp_path, "A=file 1\nB=file 1\nC=file 1\nD=file 1")
    second = tmp_path / "second"
    second.write_text("B=file 2\nC=file 2\nD=file 2\n")
    found = resolve("D=env", files=(first, second), secrets=("C", "D"), C="secret", D="secret")
    assert found == {"A": "file 1", "B": "file 2", "C": "secret", "D": "env"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("A=1\nexport TOKEN=hunter2", 2),
        ("=hunter2", 1),
        ("hunter2 x", 1),
        ("A=hunter2\0", 1),
        (b"\n\nA=hunter2\xff", 3),
    ],
)
def test_a_line_that_is_none_is_told_by_its_number_alone(tmp_path: Path, content: str | bytes, line: int) -> None:
    path = write(tmp_path, content)
    with pytest.raises(errors.UsageError) as caught:
        resolve(files=(path,))
    assert f"{path}, line {line}: not " in caught.value.message
    assert "hunter2" not in str(caught.value.to_wire())


def test_a_value_from_here_that_is_no_text_is_told_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="line 1: the value here is not UTF-8"):
        resolve(files=(write(tmp_path, "A"),), A="\udcff")


@pytest.mark.parametrize("path", ["/no/such", "/etc"])
def test_a_file_that_cannot_be_read_is_told(path: str) -> None:
    with pytest.raises(errors.UsageError, match=f"cannot read {path}: "):
        resolve(files=(Path(path),))


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="larger than"):
        resolve(files=(Path("/dev/zero"),))


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="=\0\n\r"), min_size=1).filter(
    lambda name: not name.startswith(("#", "\ufeff")) and not any(char.isspace() for char in name)
)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0\n")).filter(lambda value: not value.endswith("\r"))


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_written_line_by_line_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, wanted: dict[str, str]
) -> None:
    path = write(tmp_path_factory.getbasetemp(), "".join(f"{name}={value}\n" for name, value in wanted.items()))
    assert resolve(files=(path,)) == wanted
