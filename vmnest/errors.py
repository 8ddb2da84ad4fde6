"""The whole error tree, and the redaction of secrets in text.

The class is the meaning: ``code`` (stable, for machines), ``exit_status`` (the CLI's) and ``retryable`` are class
attributes; the message says what was tried and on what, ``hint`` what to do next. Callers never match on text.
This module imports nothing of vmnest and stays cheap: every command pays for it.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .agent.results import ExecResult

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


# -- the service -------------------------------------------------------------------------------------------------------


class CredentialsError(VmnestError):
    """Root of what can be wrong with AWS credentials."""

    code = "credentials"


class CredentialsNotFoundError(CredentialsError):
    """No credentials anywhere; the message says where they were looked for."""

    code = "credentials_not_found"


class CredentialsBrokenError(CredentialsError):
    """A source of credentials exists and cannot be used."""

    code = "credentials_broken"


class RegionNotFoundError(VmnestError):
    """No AWS region is configured."""

    code = "region_not_found"


class RequestInvalidError(UsageError):
    """A request breaks the service's own rules (checked before it is sent)."""

    code = "request_invalid"


class ServiceError(VmnestError):
    """The service answered with an error.

    Args:
        message: See VmnestError.
        operation: The operation's name, for example ``RunMicrovm``.
        status: The HTTP status.
        error_type: The service's name of the error, or None.
        request_id: The service's id of the request, or None.
        retry_after: Seconds that the service asked to wait, or None.
    """

    code = "service_error"

    def __init__(
        self,
        message: str,
        *,
        operation: str,
        status: int,
        error_type: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        hint: str | None = None,
    ) -> None:
        details = {"operation": operation, "status": status, "error_type": error_type, "request_id": request_id}
        super().__init__(message, hint=hint, details={k: v for k, v in details.items() if v is not None})
        self.operation = operation
        self.status = status
        self.error_type = error_type
        self.request_id = request_id
        self.retry_after = retry_after


class AccessDeniedError(ServiceError):
    """The credentials are valid and may not do this (403)."""

    code = "access_denied"


class SignatureRefusedError(ServiceError):
    """The service does not accept the signature: unknown key, wrong secret, expired token."""

    code = "signature_refused"


class CredentialsExpiredError(SignatureRefusedError):
    """The session that the keys belong to has ended."""

    code = "credentials_expired"


class ClockSkewError(SignatureRefusedError):
    """The service refuses the signature because this machine's clock is off."""

    code = "clock_skew"


class ThrottledError(ServiceError):
    """Too many calls (429)."""

    code = "throttled"
    retryable = True


class QuotaExceededError(ServiceError):
    """A quota of the account is used up (402). A retry does not help until something is released."""

    code = "quota_exceeded"


class CapacityError(ServiceError):
    """The service has no room at the moment."""

    code = "no_capacity"
    retryable = True


class ServiceFaultError(ServiceError):
    """The service failed (5xx)."""

    code = "service_fault"
    retryable = True


class ConflictError(ServiceError):
    """The thing is in a state that does not allow this (409)."""

    code = "conflict"


class ValidationError(ServiceError):
    """The service refuses the request's content (400)."""

    code = "validation"


class RoleNotReadyError(ValidationError):
    """The service cannot assume the role (yet): one that was made a moment ago takes some seconds."""

    code = "role_not_ready"
    retryable = True


class ResourceNotFoundError(ServiceError, NotFoundError):
    """The service does not know what the request names (404)."""

    code = "not_found"
    exit_status = EXIT_NOT_FOUND


class AnswerInvalidError(ServiceError):
    """The answer is not what the service's model says (HTML from a gateway, missing members)."""

    code = "answer_invalid"


class MicroVMEndedError(VmnestError):
    """The MicroVM ended while it was waited for or used; the message carries the service's reason."""

    code = "microvm_ended"


# -- the data plane and the agent --------------------------------------------------------------------------------------


class EndpointError(VmnestError):
    """The MicroVM's endpoint refused a request before it reached the guest."""

    code = "endpoint_refused"


class TokenRefusedError(EndpointError):
    """The endpoint does not accept the token (403)."""

    code = "token_refused"


class PortRefusedError(EndpointError):
    """The token does not cover the port (403)."""

    code = "port_refused"


class EndpointUnavailableError(EndpointError):
    """The endpoint cannot reach the MicroVM or the port in it (502)."""

    code = "endpoint_unavailable"
    retryable = True


class EndpointThrottledError(EndpointError):
    """The endpoint takes no more requests or connections at the moment (429)."""

    code = "endpoint_throttled"
    retryable = True


class AgentError(VmnestError):
    """The agent answered with an error that has no class of its own."""

    code = "agent_error"


class AgentUnreachableError(AgentError):
    """The agent did not answer in time. ``details['outcome']`` is ``unknown``: the command may have run."""

    code = "agent_unreachable"
    exit_status = EXIT_SANDBOX_FAILED


class AgentAnswerError(AgentError):
    """The agent's answer is not what the protocol says."""

    code = "agent_answer_invalid"


class RequestTooLargeError(AgentError):
    """The request is larger than the agent takes (413)."""

    code = "request_too_large"


class RemoteFileError(AgentError):
    """A file in the sandbox cannot be read or written."""

    code = "file_error"


class NotAFileError(RemoteFileError):
    """What is there in the sandbox is no regular file."""

    code = "not_a_file"


class RemoteFileNotFoundError(RemoteFileError, NotFoundError):
    """No such file in the sandbox."""

    code = "file_not_found"
    exit_status = EXIT_NOT_FOUND


class RemoteFileExistsError(RemoteFileError):
    """There is something of that name in the sandbox already."""

    code = "file_exists"


class RemoteNotADirectoryError(RemoteFileError):
    """What is there in the sandbox is no directory."""

    code = "not_a_directory"


class DirectoryNotEmptyError(RemoteFileError):
    """The directory in the sandbox has something in it."""

    code = "directory_not_empty"


class RemotePermissionError(RemoteFileError):
    """The agent may not do this to that file."""

    code = "permission_denied"


class NoSpaceError(RemoteFileError):
    """The disk of the sandbox is full."""

    code = "no_space"


class ChecksumMismatchError(RemoteFileError):
    """What arrived is not what was sent; nothing was replaced by it unless the message says so."""

    code = "checksum_mismatch"
    retryable = True


class FileChangedError(RemoteFileError):
    """The file in the sandbox was changed while it was read."""

    code = "file_changed"
    retryable = True


class IncompleteCopyError(VmnestError):
    """Something of a directory was not copied as it was; the rest was."""

    code = "incomplete_copy"


class UnsafePathError(RemoteFileError):
    """A member of an archive would have ended up outside of its directory."""

    code = "unsafe_path"


class ProcessNotFoundError(AgentError, NotFoundError):
    """The agent knows no process of that id (any more)."""

    code = "process_not_found"
    exit_status = EXIT_NOT_FOUND


class NoInputError(AgentError):
    """The process was started without a standard input that could be written to."""

    code = "no_stdin"


class NoTerminalError(AgentError):
    """The process does not run in a terminal."""

    code = "no_pty"


class ExecError(AgentError):
    """Root of the reasons why a command was not started, or did not end by itself."""

    code = "exec_failed"
    exit_status = EXIT_SANDBOX_FAILED


class CommandNotFoundError(ExecError):
    """No such program in the sandbox."""

    code = "command_not_found"
    exit_status = EXIT_COMMAND_NOT_FOUND


class NotExecutableError(ExecError):
    """The program exists and cannot be executed."""

    code = "not_executable"
    exit_status = EXIT_NOT_EXECUTABLE


class CwdNotFoundError(ExecError):
    """The working directory does not exist in the sandbox, or is none."""

    code = "cwd_not_found"


class ArgumentTooLongError(ExecError):
    """An argument, or all of them with the environment, are beyond the kernel's limit (E2BIG)."""

    code = "argument_too_long"


class BadArgumentError(ExecError):
    """An argument, a name or a value that no program can get (NUL, ``=`` in a name)."""

    code = "bad_argument"


class UserNotFoundError(ExecError):
    """The sandbox knows no such user, or the agent may not become that one."""

    code = "user_not_found"


class CommandTimedOutError(ExecError):
    """The command was ended at its timeout; ``result`` is what it left."""

    code = "timed_out"
    exit_status = EXIT_TIMED_OUT

    def __init__(self, message: str, *, result: ExecResult, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result


class CommandFailedError(ExecError):
    """The command ended with a status other than 0 and the caller asked for ``check=True``."""

    code = "command_failed"

    def __init__(self, message: str, *, result: ExecResult, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result


# -- the local cloud ---------------------------------------------------------------------------------------------------


class LocalCloudError(VmnestError):
    """The local cloud cannot do what was asked."""

    code = "local_cloud"


class LocalDaemonError(LocalCloudError):
    """The local daemon did not start, or cannot be reached."""

    code = "local_daemon"


class LocalBusyError(LocalCloudError):
    """The local cloud is not stopped while sandboxes run in it."""

    code = "local_busy"


class IsolationUnavailableError(LocalCloudError):
    """No driver can isolate a sandbox on this machine; the message names the failing step and its remedy."""

    code = "isolation_unavailable"


def iter_classes(root: type[VmnestError] = VmnestError) -> Iterator[type[VmnestError]]:
    """The tree, parents first (for the manual's table and the test of codes)."""
    yield root
    for child in root.__subclasses__():
        yield from iter_classes(child)


# A token or a signature that some library quoted in its own message must not travel on in ours.
_SECRET = re.compile(
    r"(?i)((?:x-aws-proxy-auth|x-amz-security-token|authorization|aws_secret_access_key|secret_?access_?key"
    r"|session_?token|lambda-microvms\.authentication)[\"']?\s*[:=.]\s*[\"']?)(?:AWS4-HMAC-SHA256\s[^\"'\r\n]*|[^\s\"',;&}]+)"
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
