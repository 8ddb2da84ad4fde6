"""What can go wrong with a sandbox: the way to it, its agent, files, processes and commands; the local cloud."""

from __future__ import annotations

from .root import (
    EXIT_COMMAND_NOT_FOUND,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_SANDBOX_FAILED,
    EXIT_TIMED_OUT,
    NotFoundError,
    VmnestError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent.results import ExecResult


class EndpointError(VmnestError):
    """The MicroVM's endpoint refused a request before it reached the guest."""

    code = "endpoint_refused"


class TokenRefusedError(EndpointError):
    """The endpoint does not accept the token (403)."""

    code = "token_refused"


class PortRefusedError(EndpointError):
    """The token does not cover the port (403)."""

    code = "port_refused"


class ListenError(VmnestError):
    """A port of this machine cannot be listened on."""

    code = "listen_failed"


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
