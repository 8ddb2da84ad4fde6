"""The environment of a command in a sandbox, from ``--env-file``, ``--secret`` and ``--env``.

A later source is stronger: files in the order in which they are given, then secrets, then ``--env``. Nothing of a
file and no secret is ever shown: an error names the file's line, or the secret.
"""

from __future__ import annotations

from .. import errors
from . import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["resolve"]

MOST_FILE_BYTES = 2**20
_BLANKS = " \t"
_FILE_HINT = "A line is NAME=VALUE, taken as it stands (no quotes, no export), or NAME; # begins a comment."


def resolve(
    given: Iterable[str], *, secrets: Iterable[str], files: Iterable[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """All of them together.

    Args:
        given: ``NAME=VALUE``, or ``NAME`` for the value that it has here.
        secrets: Names whose values are taken from here.
        files: Paths of files with lines ``NAME=VALUE`` or ``NAME``.
        environ: The environment that "here" is.

    Raises:
        errors.UsageError: one of them cannot be meant, cannot be read, or is not set here.
    """
    variables: dict[str, str] = {}
    for path in files:
        variables.update(_from_file(path, environ))
    for name in secrets:
        variables[name] = _secret(name, environ)
    for text in given:
        name, value = _given(text, environ)
        variables[name] = value
    return variables


def _given(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or "\0" in text:
        raise errors.UsageError(
            f"not NAME or NAME=VALUE: --env {text!r}", hint="NAME alone gives the variable the value it has here."
        )
    if not equals and name not in environ:
        raise errors.UsageError(
            f"--env {name}: there is no such variable here", hint=f"Give its value: --env {name}=VALUE"
        )
    value = value if equals else values.to_utf8(environ[name])
    if not values.is_text(name + value):
        # Not repeated: it may be a secret.
        raise errors.UsageError(f"--env {name}: not UTF-8", hint="Variables travel as text.")
    return name, value


def _secret(name: str, environ: Mapping[str, str]) -> str:
    if not name or "=" in name or "\0" in name:
        # Whoever writes NAME=VALUE has put the secret itself on the command line; at least we do not repeat it.
        raise errors.UsageError(
            "--secret takes the name of a variable alone",
            hint="Its value comes from the environment here, so that no command line shows it.",
        )
    if name not in environ:
        raise errors.UsageError(
            f"--secret {name}: there is no such variable here", hint=f"Set {name} in the environment of vmnest."
        )
    value = values.to_utf8(environ[name])
    if not values.is_text(value):
        raise errors.UsageError(f"--secret {name}: its value is not UTF-8", hint="Variables travel as text.")
    return value


# -- files -------------------------------------------------------------------------------------------------------------


def _from_file(path: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """By the rules of ``docker run --env-file``, so that files can be shared with it."""
    lines = _read(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, data in enumerate(lines, start=1):
        what = f"--env-file {path}, line {number}"
        try:
            line = data.decode("utf-8").removesuffix("\r").lstrip()
        except UnicodeDecodeError:
            raise errors.UsageError(f"{what}: not UTF-8", hint="Variables travel as text.") from None
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not name or any(blank in name for blank in _BLANKS) or "\0" in line:
            raise errors.UsageError(f"{what}: not NAME=VALUE", hint=_FILE_HINT)
        if equals:
            yield name, value
        elif name in environ:
            # As with docker, one that is not set here is left out: the file names what may be passed on.
            value = values.to_utf8(environ[name])
            if not values.is_text(value):
                raise errors.UsageError(f"{what}: the value here is not UTF-8", hint="Variables travel as text.")
            yield name, value


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise errors.UsageError(f"--env-file: cannot read {path}: {error.strerror}", hint=_FILE_HINT) from error
    if len(content) > MOST_FILE_BYTES:
        raise errors.UsageError(f"--env-file: {path} is larger than {MOST_FILE_BYTES} bytes", hint=_FILE_HINT)
    return content
