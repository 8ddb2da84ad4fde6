"""The root of the tree, and what can go wrong on this side: input, records, files, waits, connections."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_TIMED_OUT = 124
EXIT_SANDBOX_FAILED = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_COMMAND_NOT_FOUND = 127
EXIT_INTERRUPTED = 130


class VmnestError(Exception):
    """Root of all errors that vmnest raises on purpose.

    Args:
        message: What was tried, on what, and what came of it. One line.
        hint: What to do next, or None.
        details: Further facts for machines (plain JSON values).
    """

    code = "failed"
    exit_status = EXIT_FAILED
    retryable = False

    def __init__(self, message: str, *, hint: str | None = None, details: Mapping[str, object] | None = None) -> None:
        super().__init__(redact(message))
        self.message = redact(message)
        self.hint: str | None = None
        self.details: dict[str, object] = dict(details or {})
        if hint is not None:
            self.add_hint(hint)

    def __reduce__(self) -> tuple[Callable[..., VmnestError], tuple[object, ...]]:
        # The usual way calls the class with ``args`` alone, which is not all that every class wants.
        return _revive, (type(self), self.args, self.__dict__)

    def add_hint(self, hint: str) -> None:
        """Say (also) what to do next. From Python 3.11 on, the traceback of an error that nobody catches shows it."""
        # A hint that ends with a command has a line of its own: nothing of the next one is to be typed with it.
        between = " " if self.hint is None or self.hint.endswith((".", "?", "!")) else "\n"
        self.hint = hint if self.hint is None else f"{self.hint}{between}{hint}"
        if hasattr(self, "add_note"):
            self.add_note(redact(hint))

    def to_wire(self) -> dict[str, object]:
        """The ``error`` object of ``--json`` and of the MCP envelope."""
        wire: dict[str, object] = {
            "code": self.code,
            "message": self.message,
            "hint": None if self.hint is None else redact(self.hint),
            "retryable": self.retryable,
        }
        if self.details:
            wire["details"] = redact_all(self.details)
        return wire


def _revive(kind: type[VmnestError], args: tuple[object, ...], members: dict[str, object]) -> VmnestError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(members)
    return error


# -- input and settings ------------------------------------------------------------------------------------------------


class UsageError(VmnestError):
    """The caller asked for something that cannot be meant."""

    code = "usage"
    exit_status = EXIT_USAGE


class SettingError(UsageError):
    """A setting has a value that cannot be used; the message names the variable."""

    code = "bad_setting"


class ConfirmationError(UsageError):
    """What was asked for cannot be undone, and the caller has not said that it is meant."""

    code = "confirm_required"


class DependencyMissingError(VmnestError):
    """A run-time dependency is absent or too old; the message names what to install."""

    code = "dependency_missing"


class UnsupportedError(VmnestError):
    """The target or the agent has no such ability; the message names what is missing."""

    code = "unsupported"


# -- names and records -------------------------------------------------------------------------------------------------


class NotFoundError(VmnestError):
    """What was named does not exist."""

    code = "not_found"
    exit_status = EXIT_NOT_FOUND


class SandboxNotFoundError(NotFoundError):
    """No sandbox of that name is recorded."""

    code = "sandbox_not_found"


class MicroVMNotFoundError(NotFoundError):
    """The service knows no MicroVM of that id."""

    code = "microvm_not_found"


class ImageNotFoundError(NotFoundError):
    """The service knows no image of that name or ARN, or the image has no version that can run."""

    code = "image_not_found"


class NameInUseError(VmnestError):
    """A sandbox of that name is recorded already."""

    code = "name_in_use"


class StateFileError(VmnestError):
    """A state file is damaged, or was written by a newer version; nothing was overwritten."""

    code = "state_file"


class SandboxSuspendedError(VmnestError):
    """The sandbox is suspended, and the caller does not want its use to resume it."""

    code = "suspended"


class NotSuspendedError(VmnestError):
    """The sandbox took the call to suspend, and runs (again): something uses it."""

    code = "not_suspended"
    retryable = True


class OutputError(VmnestError):
    """A result could not be written to where the caller sent it (a full disk)."""

    code = "output_failed"


class LocalFileError(VmnestError):
    """A file on this machine cannot be read or written."""

    code = "local_file"


class LocalFileNotFoundError(LocalFileError, NotFoundError):
    """No such file on this machine."""

    code = "local_file_not_found"
    exit_status = EXIT_NOT_FOUND


class HostPathRefusedError(VmnestError):
    """The MCP server may not use this path of the machine that it runs on."""

    code = "policy_denied"


class InputError(VmnestError):
    """What the caller feeds a command or a file with (standard input) cannot be read."""

    code = "input_failed"


# -- time --------------------------------------------------------------------------------------------------------------


class WaitTimeoutError(VmnestError):
    """A wait reached its deadline; the message says what was waited for and what was last seen."""

    code = "timed_out"
    retryable = True


# -- transport ---------------------------------------------------------------------------------------------------------


class TransportError(VmnestError):
    """A request got no complete answer.

    ``sent`` tells whether any byte of the request may have reached the peer: only if it is False is a repeat of a
    request that is not idempotent safe.
    """

    code = "transport"
    retryable = True
    sent = True


class ConnectError(TransportError):
    """No connection: name not resolved, refused, unreachable, timed out while connecting. Nothing was sent."""

    code = "connect_failed"
    sent = False


class TlsError(TransportError):
    """The peer's certificate was refused, or the handshake failed. Nothing was sent."""

    code = "tls_failed"
    retryable = False
    sent = False


class ProxyError(TransportError):
    """The HTTP proxy between us and the peer refused or failed. Nothing reached the peer."""

    code = "proxy_failed"
    sent = False


class ConnectionLostError(TransportError):
    """The connection ended before the answer was complete; the outcome is unknown."""

    code = "connection_lost"


class ReadTimeoutError(TransportError):
    """The peer accepted the request and did not answer in time; the outcome is unknown."""

    code = "read_timed_out"


class AnswerTooLargeError(TransportError):
    """The answer is larger than the caller takes; it was not read to its end."""

    code = "answer_too_large"
    retryable = False


def iter_classes(root: type[VmnestError] = VmnestError) -> Iterator[type[VmnestError]]:
    """The tree, parents first (for the manual's table and the test of codes)."""
    yield root
    for child in root.__subclasses__():
        yield from iter_classes(child)


# A token or a signature that some library quoted in its own message must not travel on in ours.
_SECRET = re.compile(
    r"(?i)((?:x-aws-proxy-auth|x-amz-security-token|x-amz-signature|authorization(?:_token)?|aws_secret_access_key"
    r"|secret_?access_?key|session_?token|lambda-microvms\.authentication)[\"']?\s*[:=.]\s*(?:b?[\"'])?)"
    r"(?:AWS4-HMAC-SHA256\s[^\"'\r\n]*|(?:(?:Basic|Bearer|Negotiate|Token)\s+)?[^\s\"',;&}]+)"
)
# The login in a URL: proxies have one.
_LOGIN = re.compile(r"(?<=://)[^/\s\"'@:]*:[^/\s\"']*@")
_JWE = re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_.-]+")


def redact(text: str) -> str:
    """Replace what looks like a credential, a signature or a token by ``[redacted]``."""
    return _LOGIN.sub("[redacted]@", _JWE.sub("[redacted]", _SECRET.sub(r"\1[redacted]", text)))


def redact_all(value: object) -> object:
    """``redact`` every text in a JSON value."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: redact_all(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item) for item in value]
    return value


def quote(text: str, *, limit: int) -> str:
    """Somebody else's text for a message: one line of at most ``limit`` characters, none of which steers a terminal."""
    head = "".join(character if character.isprintable() else " " for character in text[: 4 * limit])
    line = " ".join(head.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
