"""The client of the agent's base contract: health, commands, whole files.

Two rules decide what is repeated. A request of which nothing can have been executed (no connection, a refused token, a
data plane that says it did not reach the guest) is sent again within a budget: the first one after a launch or a resume
often meets a 502. A command is sent again after a 502 that proves nothing only if the agent promises to run it once
(each has an id). Otherwise, when its answer is lost, the error says that the outcome is unknown, and what became of the
MicroVM meanwhile.

Time: the command's ``timeout`` is enforced in the guest. The client waits that long and a grace, on which all attempts
and the waits between them draw; without a timeout it waits as long as the command runs. Meanwhile it looks, every now
and then, whether the MicroVM still runs, and asks the agent how it is: to the platform a command is no traffic, and it
would suspend a MicroVM in the middle of a long one.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, SYSTEM_CLOCK, Clock, Deadline, backoff
from ..wire import names
from . import arguments, commands, exchange, feeding, refusals, stats, streams
from .commands import OUTPUT_LIMIT_BYTES
from .results import ExecResult
from .tokens import HeaderPairs

if TYPE_CHECKING:
    from ..transport import Response, Transport

__all__ = ["OUTPUT_LIMIT_BYTES", "AgentClient", "Health"]

GRACE_SECONDS = 30.0  # beyond a command's timeout: for a suspended sandbox to wake up, and for the way there and back
SLOWEST_UPLOAD_BYTES_PER_SECOND = 65536.0
HEALTH_SECONDS = 10.0  # one look at the agent, while it or a command is waited for
WAKE_SECONDS = 30.0  # how long an unexecuted request is repeated
QUIET_SECONDS = 25.0  # between two looks at a MicroVM whose command is waited for; the shortest idle time is 60 s
FIRST_RETRY_SECONDS = 0.02
LAST_RETRY_SECONDS = 1.0

_logger = logging.getLogger(__name__)

# What a request may meet before the agent answers, for a while after a launch or a resume.
_TRANSIENT = (errors.EndpointUnavailableError, errors.EndpointThrottledError, errors.ConnectError)


class Health(NamedTuple):
    """What the agent says about itself.

    Attributes:
        version: Its version, as it says.
        features: The extensions of the base contract that it has.
        uptime: Seconds since it was started; None if it does not say.
    """

    version: str
    features: frozenset[str]
    uptime: float | None = None


class AgentClient:
    """Talks to the agent in one MicroVM. Safe for threads, and after ``fork`` as its transport is.

    Args:
        endpoint: URL of the MicroVM's data plane.
        headers: Gives the headers that the data plane asks for. Its argument is None, or the headers that were just
            refused, in whose place others are wanted.
        transport: Sends the requests.
        port: The agent's port in the guest.
        clock: The time.
        recover: Called with the error each time a request was not executed, before it is sent again. Returns the
            endpoint to go on with, or raises what tells more than the error does.
        recover_asleep: The same for requests that must not wake a suspended MicroVM: it raises SandboxSuspendedError.
        look: Asks for the MicroVM's state, without waking it: called when a command's answer was lost.
        grace: Seconds added to a command's timeout before the agent counts as unreachable.
        wake: Seconds during which an unexecuted request is repeated.
        quiet: Seconds without a byte of a command's answer after which the sandbox is looked at, and kept awake.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Callable[[HeaderPairs | None], HeaderPairs],
        transport: Transport,
        port: int,
        clock: Clock = SYSTEM_CLOCK,
        recover: Callable[[errors.VmnestError], str] | None = None,
        recover_asleep: Callable[[errors.VmnestError], str] | None = None,
        look: Callable[[], str] | None = None,
        grace: float = GRACE_SECONDS,
        wake: float = WAKE_SECONDS,
        quiet: float = QUIET_SECONDS,
    ) -> None:
        self.endpoint = endpoint
        self._headers = headers
        self._transport = transport
        self._port = port
        self.clock = clock
        self._recover = recover
        self._recover_asleep = recover_asleep or recover
        self._look = look
        self.grace = grace
        self._wake = wake
        self.quiet = quiet
        self._features: frozenset[str] | None = None  # of the agent at this endpoint; None: it was not asked yet
        self._lacking: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"AgentClient({self.endpoint!r}, port={self._port})"

    def health(self, *, wakes: bool = True, deadline: Deadline = NEVER) -> Health:
        """Ask the agent how it is."""
        request = exchange.Request("GET", wire.HEALTH_PATH, asked=refusals.HEALTH, deadline=deadline, wakes=wakes)
        with self.send(request) as response:
            return self._learn(response)

    def supports(self, feature: str, *, deadline: Deadline = NEVER) -> bool:
        """Whether the agent has an extension of the base contract. It is asked once, unless it has said so already."""
        if self._features is None:
            self.health(deadline=deadline)
        assert self._features is not None
        return feature in self._features

    def note_lack(self, feature: str) -> None:
        """An answer told that the agent has no such extension."""
        self._lacking |= {feature}

    def is_known_to_lack(self, feature: str) -> bool:
        """Whether the agent has told that it has no such extension. Nobody is asked."""
        return feature in self._lacking or (self._features is not None and feature not in self._features)

    def stats(self, *, over: float = 0.0, wakes: bool = True, deadline: Deadline = NEVER) -> stats.Stats:
        """What the sandbox uses: see ``stats.fetch``."""
        return stats.fetch(self, over=over, wakes=wakes, deadline=deadline)

    def look(self) -> str | None:
        """The MicroVM's state, which never wakes it; None if it cannot be seen."""
        if self._look is None:
            return None
        try:
            return self._look()
        except errors.VmnestError as failure:
            _logger.info("the MicroVM's state could not be seen: %s", failure)
            return None

    def ended(self, state: str) -> errors.VmnestError:
        """The error for a MicroVM that was seen to have ended, with the service's reason if that is to be had."""
        error = errors.MicroVMEndedError(f"the sandbox has ended ({state})", details={"state": state})
        try:
            if self._recover_asleep is not None:
                self._recover_asleep(error)
        except errors.MicroVMEndedError as told:
            return told
        except errors.VmnestError as failure:
            _logger.info("why the MicroVM has ended could not be seen: %s", failure)
        return error

    def wait_ready(self, *, deadline: Deadline) -> Health:
        """Wait until the agent answers.

        Raises:
            errors.WaitTimeoutError: not within the deadline; the last failure is its cause.
        """
        last: errors.VmnestError | None = None
        for delay in backoff(first=FIRST_RETRY_SECONDS, last=LAST_RETRY_SECONDS):
            if last is not None and deadline.expired:
                raise errors.WaitTimeoutError(
                    f"the agent in the sandbox did not answer within {deadline.seconds:g} s: {last}"
                ) from last
            look = Deadline(deadline.clamp(HEALTH_SECONDS), clock=self.clock)
            request = exchange.Request("GET", wire.HEALTH_PATH, asked=refusals.HEALTH, deadline=look)
            try:
                with self._authorized(request) as response:
                    return self._learn(response)
            except (*_TRANSIENT, errors.ConnectionLostError, errors.ReadTimeoutError) as error:
                last = error
                self._use_recovery(request, error)
            self.clock.sleep(deadline.clamp(delay))
        raise AssertionError("the schedule of delays has no end")

    def exec(
        self,
        command: str,
        args: Sequence[str] | None = None,
        *,
        is_shell: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        user: str | int | None = None,
        rlimits: Mapping[str, arguments.RlimitValue] | None = None,
        stdin: feeding.Source | None = None,
        output_limit: int = OUTPUT_LIMIT_BYTES,
        on_stdout: streams.Sink | None = None,
        on_stderr: streams.Sink | None = None,
        deadline: Deadline = NEVER,
    ) -> ExecResult:
        """Run a program and wait for its end.

        Args:
            command: The program: a path, or a name that is looked up in the sandbox's PATH.
            args: Its arguments.
            is_shell: The command is a line for ``bash -lc``, or ``sh -lc`` where there is no bash.
            cwd: Its working directory; the agent's default if None.
            env: Variables that are added to the sandbox's environment.
            timeout: Seconds after which the agent ends the program with all its children; None for no end.
            user: The name or the number of the user that it runs as; the agent's own if None.
            rlimits: Resource limits by name (``nofile``): one number, or the soft and the hard one.
            stdin: What it can read; nothing if None. Pieces are taken from an iterable in a thread.
            output_limit: Bytes of each stream that the result holds, half of its beginning and half of its end.
            on_stdout: Gets standard output as bytes in pieces, as they come; the result then holds none. From an agent
                without processes they come once the command has ended.
            on_stderr: The same for standard error.
            deadline: When to stop waiting, whatever the command does.

        Raises:
            errors.BadArgumentError: an argument that no program can get.
            errors.ExecError: the command was not started (see its subclasses).
            errors.CommandTimedOutError: it was ended at its timeout; the error carries what it left.
            errors.AgentUnreachableError: no answer came; whether the command ran is unknown.
            errors.EndpointError: the data plane refused the request.
            errors.UnsupportedError: the agent knows no users, limits or input of commands.
        """
        wish = arguments.Command(
            command, args, is_shell=is_shell, cwd=cwd, env=env, timeout=timeout, user=user, rlimits=rlimits,
            has_stdin=stdin is not None,
        )  # fmt: skip
        outlet = commands.Outlet(limit=output_limit, on_stdout=on_stdout, on_stderr=on_stderr)
        return commands.run(self, wish, outlet=outlet, stdin=stdin, deadline=deadline)

    def read_file(self, path: str, *, limit: int | None = None, deadline: Deadline = NEVER) -> bytes:
        """The content of a file.

        Raises:
            errors.RemoteFileNotFoundError: there is no such file.
            errors.RemoteFileError: it cannot be read, or is larger than ``limit`` bytes.
        """
        request = exchange.Request(
            "POST", wire.FS_READ_PATH, asked=refusals.FILE, body=arguments.build_read(path), deadline=deadline
        )
        content = streams.Collector(limit)

        def take(data: bytes) -> None:
            content(data)
            if content.truncated:
                raise errors.RemoteFileError(f"the file {path} in the sandbox is larger than {limit} bytes")

        with self.send(request) as response:
            streams.read_answer(request.pieces(response), sinks={"content": take})
        return content.value()

    def write_file(self, path: str, data: bytes | bytearray | memoryview, *, deadline: Deadline = NEVER) -> int:
        """Write a whole file, making its folder; the number of bytes.

        Raises:
            errors.RemoteFileError: it cannot be written.
            errors.RequestTooLargeError: the agent does not take so much in one request.
        """
        body = arguments.build_write(path, data)
        request = exchange.Request(
            "POST",
            wire.FS_WRITE_PATH,
            asked=refusals.FILE,
            body=body,
            deadline=deadline,
            patience=exchange.SILENCE_SECONDS + len(body) / SLOWEST_UPLOAD_BYTES_PER_SECOND,
        )
        with self.send(request) as response:
            members = streams.read_answer(request.pieces(response), sinks={})
        expected = memoryview(data).nbytes
        if members.get("bytes_written") != expected:
            raise errors.AgentAnswerError(
                f"the agent says that it wrote {members.get('bytes_written')} bytes of {path}, not {expected}"
            )
        return expected

    def send(self, request: exchange.Request) -> Response:
        """The answer to a request, whose body is still on the wire: ``request.pieces(response)`` reads it.

        What was not executed is sent again, within a budget; a refused token is replaced once.

        Raises:
            errors.VmnestError: a status that is not among the accepted ones, as the error that it means; no answer;
                what became of the MicroVM.
        """
        budget = Deadline(request.deadline.clamp(self._wake), clock=self.clock)
        for delay in backoff(first=FIRST_RETRY_SECONDS, last=LAST_RETRY_SECONDS):
            try:
                return self._authorized(request)
            except errors.TokenRefusedError as error:
                if budget.expired or not self._has_moved(request, error):
                    raise
            except _TRANSIENT as error:
                if budget.expired or not self._may_repeat(request, error, budget=budget):
                    raise
            self.clock.sleep(budget.clamp(delay))
        raise AssertionError("the schedule of delays has no end")

    def _has_moved(self, request: exchange.Request, error: errors.VmnestError) -> bool:
        """A new token was refused as well: perhaps the endpoint that we know is another MicroVM's by now."""
        known = self.endpoint
        self._use_recovery(request, error)
        return self.endpoint != known

    def _may_repeat(self, request: exchange.Request, error: errors.VmnestError, *, budget: Deadline) -> bool:
        if self._recover is None and isinstance(error, errors.ConnectError):
            # Nobody listens at the address itself: only somebody who can find another one makes a repeat useful.
            return False
        is_harmless = request.is_repeatable or refusals.is_unexecuted(error)
        request.may_have_run |= not is_harmless
        self._use_recovery(request, error)
        return is_harmless or (request.exec_id is not None and self._runs_once(error, budget=budget))

    def _runs_once(self, error: errors.VmnestError, *, budget: Deadline) -> bool:
        """The data plane does not say whether it reached the agent: ask the agent whether it can tell a repeat."""
        try:
            return wire.FEATURE_EXEC_ID in self.wait_ready(deadline=budget).features
        except errors.WaitTimeoutError as late:
            raise error from late

    def _keep_awake(self, request: exchange.Request) -> None:
        """Called while a command runs quietly: nothing but traffic keeps its MicroVM from being suspended for idleness.

        Raises:
            errors.AgentUnreachableError: the MicroVM does not run any more: no answer will come.
        """
        # First, since traffic would wake a MicroVM that was suspended on purpose.
        state = self.look()
        if state in (*names.ENDED_STATES, names.SUSPENDED):
            raise exchange.lost(request, "the sandbox does not run any more")
        if state == names.SUSPENDING:  # the command has a moment left to end in
            return
        assert request.bound is not None
        patience = Deadline(request.bound.clamp(HEALTH_SECONDS), clock=self.clock)
        probe = exchange.Request("GET", wire.HEALTH_PATH, asked=refusals.HEALTH, deadline=patience)
        try:
            with self._authorized(probe) as response:
                self._learn(response)
        except errors.VmnestError as failure:
            # It may be too busy for us. What is waited for is the command's end.
            _logger.info("while a command runs, its agent could not be asked how it is: %s", failure)

    def _use_recovery(self, request: exchange.Request, error: errors.VmnestError) -> None:
        recover = self._recover if request.wakes else self._recover_asleep
        if recover is not None:
            self.endpoint = recover(error)

    def _learn(self, response: Response) -> Health:
        health = _health(response)
        self._features = health.features
        return health

    def _authorized(self, request: exchange.Request) -> Response:
        """One attempt, and a second one with new headers if the first ones were refused."""
        headers = self._headers(None)
        try:
            return self._attempt(request, headers)
        except errors.TokenRefusedError:
            return self._attempt(request, self._headers(headers))

    def _attempt(self, request: exchange.Request, authorization: HeaderPairs) -> Response:
        headers = [*authorization, (names.PROXY_PORT_HEADER, str(self._port)), ("Accept", "*/*"), *request.headers]
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        if request.exec_id is not None:
            headers.append((wire.EXEC_ID_HEADER, request.exec_id))
        request.bound = exchange.AnswerDeadline(request.patience, outer=request.deadline, clock=self.clock)
        with exchange.lost_answers(request), exchange.noting_doubt(request):
            response = self._transport.send(
                request.method,
                self.endpoint.rstrip("/") + request.path,
                headers=headers,
                body=request.outgoing(),
                deadline=request.bound,
                read_timeout=request.silence if request.command is None else self.quiet,
                on_silence=None if request.command is None else functools.partial(self._keep_awake, request),
                retry_stale=request.is_repeatable,
            )
        if response.status in request.accepted or request.is_timeout(response):
            return response
        request.bound.end_within(exchange.SILENCE_SECONDS)
        with response:
            raise refusals.build(
                response.status,
                response.headers,
                exchange.beginning(response),
                asked=request.asked,
                port=self._port,
            )


def _health(response: Response) -> Health:
    try:
        answer = json.loads(exchange.beginning(response))
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("status") != "ok":
        raise errors.AgentAnswerError(
            "what listens on the agent's port does not answer like the agent",
            hint="Is AGENT_SANDBOX_AGENT_PORT the port of the agent in the image?",
        )
    version, features = answer.get("version"), answer.get("features")
    known = [name for name in features if isinstance(name, str)] if isinstance(features, list) else []
    uptime = answer.get("uptime")
    return Health(
        version=version if isinstance(version, str) else "",
        features=frozenset(known),
        uptime=float(uptime) if isinstance(uptime, (int, float)) and not isinstance(uptime, bool) else None,
    )
