"""Commands as requests describe them: members of a document turned into what can be started."""

from __future__ import annotations

import os
import re

from . import documents, limits, programs, terminals, users, wire
from .errors import RequestError, bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ID = re.compile(f"[A-Za-z0-9_-]{{1,{wire.MAX_EXEC_ID_CHARS}}}")
_SHELLS = (b"bash", b"sh")  # the first one that is there runs a line
_STDIN_MODES = (wire.STDIN_NONE, wire.STDIN_PIPE)


class Commands:
    """Builds commands, for an agent.

    Args:
        workdir: Where they run unless they say otherwise, and where relative paths begin.
        environment: What they get beside their own variables.
    """

    def __init__(self, *, workdir: bytes, environment: Mapping[bytes, bytes]) -> None:
        self._workdir = workdir
        self._environment = environment

    def build(self, document: documents.Document) -> programs.Command:
        """A one-shot command.

        Raises:
            RequestError: a member of the document cannot be used.
        """
        own = _parse_variables(document)
        return programs.Command(
            _parse_argv(document),
            cwd=self._find_cwd(document),
            environment=programs.build_environment(self._environment, own=own),
            timeout=document.seconds("timeout"),
        )

    def build_process(self, document: documents.Document) -> programs.Command:
        """A command with all that a process may have: a shell's line, an input, a terminal, a user, limits.

        Raises:
            RequestError: a member of the document cannot be used.
        """
        line = document.optional_text("shell")
        if line is None:
            return self._build_process(document, _parse_argv(document))
        if document.optional_text("command") is not None:
            raise bad_argument("shell", "must not be given beside command")
        words = (b"-lc", documents.encode_text("shell", line))
        for shell in _SHELLS:
            command = self._build_process(document, [shell, *words])
            if shell == _SHELLS[-1] or _is_found(command):
                break
        return command

    def resolve(self, field: str, path: str) -> bytes:
        """A path of a request; a relative one begins at the working directory."""
        if not path:
            raise bad_argument(field, "must not be empty")
        return os.path.join(self._workdir, documents.encode_text(field, path))

    def _build_process(self, document: documents.Document, argv: Sequence[bytes]) -> programs.Command:
        own = _parse_variables(document)
        wanted = document.text_or_number("user")
        user = None if wanted is None else users.find(wanted)
        size = document.raw("pty")
        pty = None if size is None else terminals.parse_size(size)
        stdin = document.text("stdin", wire.STDIN_NONE)
        if stdin not in _STDIN_MODES:
            raise bad_argument("stdin", f"must be {' or '.join(_STDIN_MODES)}")
        return programs.Command(
            argv,
            cwd=self._find_cwd(document),
            environment=programs.build_environment(self._environment, own=own, user=user, is_terminal=pty is not None),
            timeout=document.seconds("timeout"),
            stdin=stdin == wire.STDIN_PIPE,
            pty=pty,
            user=user,
            rlimits=limits.parse(document.raw("rlimits")),
        )

    def _find_cwd(self, document: documents.Document) -> bytes:
        cwd = document.optional_text("cwd")
        # Only the default is made: a cwd that somebody named is there, or is an error.
        if cwd is None or not cwd.startswith("/"):
            programs.ensure_workdir(self._workdir)
        return self._workdir if cwd is None else self.resolve("cwd", cwd)


def parse_id(field: str, text: str) -> str:
    """A caller's own id of a command.

    Raises:
        RequestError: it is none.
    """
    if not _ID.fullmatch(text):
        raise bad_argument(field, f"must be 1 to {wire.MAX_EXEC_ID_CHARS} letters, digits, - or _")
    return text


def _parse_argv(document: documents.Document) -> list[bytes]:
    name = documents.encode_text("command", document.text("command"))
    return [name, *(documents.encode_text(f"args[{i}]", text) for i, text in enumerate(document.texts("args")))]


def _parse_variables(document: documents.Document) -> dict[bytes, bytes]:
    variables = {}
    for key, value in document.text_map("env").items():
        if not key or "=" in key:
            raise bad_argument(f"env[{key!r}]", "must be a name without '='")
        variables[documents.encode_text(f"env[{key!r}]", key)] = documents.encode_text(f"env[{key!r}]", value)
    return variables


def _is_found(command: programs.Command) -> bool:
    try:
        programs.resolve(command)
    except RequestError as error:
        if error.code == wire.COMMAND_NOT_FOUND:
            return False
        raise
    return True
