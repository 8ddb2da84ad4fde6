"""``Sandbox``: one MicroVM with a name, and what can be done with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .. import errors, registry, settings
from .. import target as targets
from .._guest.agentd import wire
from ..agent import arguments, commands, feeding
from ..agent.client import AgentClient
from ..agent.commands import OUTPUT_LIMIT_BYTES
from ..agent.outputs import ProcessInfo
from ..agent.results import ExecResult
from ..agent.stats import Stats
from ..control.microvms import LONGEST_LIFE_SECONDS, IdlePolicy
from ..deadline import NEVER, Deadline, check_seconds
from ..forward.ports import LOOPBACK, POLL_SECONDS
from ..wire import names
from . import launch, life, making, shares, spawning, wiring, wishes
from .files import Files
from .link import CALL_SECONDS, Link, place_of
from .logs import Logs
from .process import Process

if TYPE_CHECKING:
    from .forwarding import Forwarding
    from .native import NativeShell

__all__ = ["Sandbox"]

CREATE_SECONDS = 120.0
STATE_SECONDS = 120.0  # to suspend, to resume
STATS_SECONDS = 30.0
NATIVE_SHELL_SECONDS = 60.0


class Sandbox:
    """A MicroVM of its own for code that nobody has vetted.

    Made by ``create``; found again by ``attach``, from this or any other process. Leaving a ``with`` block ends the
    MicroVM (a forked child that leaves its parent's block ends nothing). Safe for threads, and after ``fork``. Nothing
    connects before it is needed.

    Every failure is a VmnestError. Beside those that the methods name: UsageError for what cannot be meant,
    NameInUseError, ServiceError when the service refuses, MicroVMEndedError with the service's reason when the MicroVM
    has ended, EndpointError when its endpoint refuses, WaitTimeoutError for every wait that was too long.

    Attributes:
        name: The sandbox's name.
        files, logs: Its files, and what it has logged.
    """

    def __init__(self, link: Link) -> None:
        """Not for users: see ``create`` and ``attach``."""
        self.name = link.record.name
        self._link = link
        self.files = Files(self._awake_agent, environ=link.place.environ)
        self.logs = Logs(link)
        self._entered_by = 0

    # -- making and finding --------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        name: str | None = None,
        *,
        image_arn: str | None = None,
        image_version: str | None = None,
        cpus: float | None = None,
        memory: int | None = None,
        execution_role_arn: str | None = None,
        region: str | None = None,
        idle_policy: IdlePolicy | None = None,
        maximum_duration: int = LONGEST_LIFE_SECONDS,
        ingress_network_connectors: Sequence[str] | None = None,
        egress_network_connectors: Sequence[str] | None = None,
        egress_allow: Sequence[str] | None = None,
        run_payload: str | None = None,
        log_group: str | None = None,
        labels: Mapping[str, str] | None = None,
        replace: bool = False,
        agent_port: int | None = None,
        wait_timeout: float | None = None,
        verify_tls: bool | None = None,
        local: bool | None = None,
    ) -> Sandbox:
        """Start a MicroVM and wait until its agent answers. If that fails, nothing is left behind.

        Args:
            name: A name that is not in use; made up if None.
            image_arn: ARN or name of the image; else ``AGENT_SANDBOX_IMAGE_ARN``, else the one that infrastructure
                offers (``vmnest infra up``), and locally the built-in image.
            image_version: A version of it; the newest active one if None.
            cpus, memory: CPUs, and MiB. On AWS compared with the image, whose sizes they are; locally what it gets.
            execution_role_arn: The role of code inside; else ``AGENT_SANDBOX_EXECUTION_ROLE_ARN``, else of infra up.
            region: AWS region; else that of the image's ARN, else AWS's own settings.
            idle_policy: When it is suspended and for how long; after 15 minutes, for the rest of its life, if None.
            maximum_duration: Seconds after which it ends in any case, suspended or not; 1 to 28,800 (8 hours).
            ingress_network_connectors: ARNs, or the service's names; HTTP_INGRESS if None, which must be among them.
            egress_network_connectors: The same, one at most; the image's own if None.
            egress_allow: What a local sandbox may reach: ``HOST[:PORT]``, ``*.DOMAIN``, ``internet`` (also on AWS).
            run_payload: Text that the image's run hook gets: at most 4096 bytes. No record holds it.
            log_group: CloudWatch log group for what it prints; needs a role.
            labels: Your own labels for it, kept in the local record.
            replace: End the sandbox that has the name, if there is one, and take its place.
            agent_port: The agent's port in the image; else ``AGENT_SANDBOX_AGENT_PORT``, else 8080.
            wait_timeout: Seconds that all of this may take; 120 if None.
            verify_tls: False: do not verify the endpoint's certificate (debugging only).
            local: True: on this machine. False: on AWS. None: what ``AGENT_SANDBOX_TARGET`` says, else AWS.
        """
        environ = settings.environment()
        wired = wiring.resolve(image=image_arn, role=execution_role_arn, local=local, region=region, environ=environ)
        wish = wishes.Wish(
            name=f"sandbox-{os.urandom(4).hex()}" if name is None else registry.check_name(name),
            image=wired.image, image_version=image_version, cpus=cpus, memory_mib=memory,
            execution_role_arn=wired.role, sources=wired.sources, run_payload=run_payload, log_group=log_group,
            idle_policy=idle_policy, maximum_duration_seconds=maximum_duration, labels=labels or {},
            ingress=ingress_network_connectors or (), egress=egress_network_connectors or (),
            agent_port=settings.number("agent_port", flag=agent_port, environ=environ), egress_allow=egress_allow or (),
        )  # fmt: skip
        deadline = Deadline(CREATE_SECONDS if wait_timeout is None else wait_timeout)
        return cls(making.make(wish, place=wired.place, deadline=deadline, verify_tls=verify_tls, replace=replace))

    @classmethod
    def attach(
        cls,
        name: str,
        microvm_id: str | None = None,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        agent_port: int | None = None,
        verify_tls: bool | None = None,
        auto_resume: bool = True,
        local: bool | None = None,
    ) -> Sandbox:
        """The sandbox of that name, or that MicroVM under a name of yours. Asks nobody whether it is still there.

        Args:
            name: The recorded name; with ``microvm_id`` any name.
            microvm_id: A MicroVM, recorded or not. The other arguments then say where it is.
            endpoint: URL of its data plane; the service is asked if None.
            region: AWS region, instead of the recorded one.
            agent_port: The agent's port, instead of the recorded one.
            verify_tls: False: do not verify the endpoint's certificate (debugging only).
            auto_resume: False: its use does not resume it. While it is suspended, whatever needs it raises
                SandboxSuspendedError, and sends nothing that would wake it; only ``resume`` does.
            local: With ``microvm_id``: whether it is on this machine.

        Raises:
            errors.SandboxNotFoundError: no sandbox of that name is recorded, and no ``microvm_id`` is given.
        """
        environ = settings.environment()
        records = registry.open_default(environ)
        if microvm_id is None:
            record = records.require(name)
        else:
            place = targets.resolve(local=local, region=region, environ=environ)
            record = registry.Record(name, microvm_id=microvm_id, endpoint=endpoint, region=place.region)
            record = record.replace(target=place.kind)
        if agent_port is not None:
            record = record.replace(agent_port=agent_port)
        return cls.from_record(record, region=region, records=records, verify_tls=verify_tls, auto_resume=auto_resume)

    @classmethod
    def get(
        cls, name: str, *, region: str | None = None, verify_tls: bool | None = None, auto_resume: bool = True
    ) -> Sandbox:
        """The recorded sandbox of that name. Asks nobody whether it is still there: ``refresh`` does.

        See ``attach`` for the arguments.

        Raises:
            errors.SandboxNotFoundError: no sandbox of that name is recorded.
        """
        return cls.attach(name, region=region, verify_tls=verify_tls, auto_resume=auto_resume)

    @classmethod
    def from_record(
        cls,
        record: registry.Record,
        *,
        region: str | None = None,
        records: registry.Registry | None = None,
        verify_tls: bool | None = None,
        auto_resume: bool = True,
    ) -> Sandbox:
        """The sandbox that a record describes, on the target that the record names. See ``attach`` for the rest.

        Raises:
            errors.UnsupportedError: the record names a target that this version does not know.
        """
        place, records = place_of(record, region=region), records or registry.open_default()
        return cls(Link(record, place=place, records=records, verify_tls=verify_tls, auto_resume=auto_resume))

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def microvm_id(self) -> str:
        """The MicroVM's id. If the launch was cut off before it was known, that launch is completed first.

        Raises:
            errors.MicroVMNotFoundError: the launch cannot be completed.
        """
        return self._link.microvm_id

    @property
    def endpoint(self) -> str:
        """URL of the MicroVM's data plane."""
        return self._link.endpoint

    @property
    def state(self) -> str:
        """The state last seen, in the service's words, or UNKNOWN; ``refresh`` asks."""
        return self._link.state

    @property
    def is_local(self) -> bool:
        """It is on this machine."""
        return self._link.place.is_local

    @property
    def record(self) -> registry.Record:
        """What is recorded about it."""
        return self._link.record

    def __repr__(self) -> str:
        return f"Sandbox({self.name!r}, microvm_id={self.record.microvm_id!r}, state={self.state!r})"

    def refresh(self, *, timeout: float = CALL_SECONDS) -> str:
        """Ask the service for the state, and return it. This never wakes a suspended MicroVM."""
        return self._link.look(deadline=Deadline(timeout)).state

    def inspect(self) -> dict[str, object]:
        """Everything that the service says about the MicroVM, as it says it."""
        return dict(self._link.look().raw)

    def stats(self, *, over: float = 0.0, timeout: float = STATS_SECONDS) -> Stats:
        """What it uses just now, as its agent says. This never wakes a suspended sandbox; to be asked keeps it awake.

        Args:
            over: Seconds over which the share of the CPUs is measured; 0: since the agent was last asked, by anybody.
            timeout: Seconds that all of this may take.

        Raises:
            errors.SandboxSuspendedError: it is suspended.
            errors.MicroVMEndedError: it has ended.
            errors.UnsupportedError: its agent does not tell that.
        """
        deadline = Deadline(timeout)
        limits = life.check_awake(self._link, deadline=deadline).raw.get(names.LOCAL_DETAILS_MEMBER)
        over = check_seconds(over, name="over")
        return shares.limited(self._link.agent(wakes=False).stats(over=over, wakes=False, deadline=deadline), limits)

    # -- commands ------------------------------------------------------------------------------------------------------

    def exec(
        self,
        command: str,
        args: Sequence[str] | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        user: str | int | None = None,
        rlimits: Mapping[str, arguments.RlimitValue] | None = None,
        stdin: feeding.Source | None = None,
        check: bool = False,
        output_limit: int = OUTPUT_LIMIT_BYTES,
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
        deadline: Deadline = NEVER,
    ) -> ExecResult:
        """Run a program and wait for its end. A suspended sandbox is resumed for it.

        A status other than 0 is a result, no error, unless ``check`` is set. If it is suspended in the middle, this
        waits until something resumes it.

        Args:
            command: The program: a path, or a name that is looked up in the sandbox's PATH.
            args: Its arguments.
            cwd: Its working directory; else ``AGENT_SANDBOX_WORKDIR`` if that is set, which is made if it is missing,
                else the agent's default.
            env: Variables that are added to the sandbox's environment.
            timeout: Seconds after which the program and all its children are ended; None for no end.
            user: The name or the number of the user that it runs as; the agent's own if None.
            rlimits: Resource limits by name (``nofile``): one number, or the soft and the hard one.
            stdin: What it can read: bytes, text, a binary file or pieces, which a thread takes. Nothing if None.
            check: Raise CommandFailedError for a status other than 0.
            output_limit: Bytes of each stream that the result holds, half of its beginning and half of its end; what
                is dropped in the middle, ``stdout_missing`` and ``stderr_missing`` say.
            on_stdout: Gets standard output as bytes in pieces as they come; the result then holds none.
            on_stderr: The same for standard error.
            deadline: When to stop waiting, whatever the command does.

        Raises:
            errors.CommandTimedOutError: it was ended at its timeout; ``result`` is what it left.
            errors.CommandFailedError: see ``check``; ``result`` is what it left.
            errors.ExecError: it was not started (see its subclasses).
            errors.AgentUnreachableError: no answer came; whether it ran is unknown.
            errors.MicroVMEndedError: the MicroVM has ended.
        """
        wish = arguments.Command(
            command, args, cwd=self._cwd(cwd, deadline), env=env, timeout=timeout, user=user, rlimits=rlimits,
            has_stdin=stdin is not None,
        )  # fmt: skip
        outlet = commands.Outlet(limit=output_limit, on_stdout=on_stdout, on_stderr=on_stderr)
        return self._run(wish, outlet, stdin=stdin, check=check, deadline=deadline)

    def shell(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: float | None = None, user: str | int | None = None,
        rlimits: Mapping[str, arguments.RlimitValue] | None = None, stdin: feeding.Source | None = None,
        check: bool = False, output_limit: int = OUTPUT_LIMIT_BYTES,
        on_stdout: Callable[[bytes], object] | None = None, on_stderr: Callable[[bytes], object] | None = None,
        deadline: Deadline = NEVER,
    ) -> ExecResult:  # fmt: skip
        """Run a line of shell: by ``bash -lc``, or ``sh -lc`` where there is no bash. Otherwise as ``exec``."""
        wish = arguments.Command(
            command, is_shell=True, cwd=self._cwd(cwd, deadline), env=env, timeout=timeout, user=user, rlimits=rlimits,
            has_stdin=stdin is not None,
        )  # fmt: skip
        outlet = commands.Outlet(limit=output_limit, on_stdout=on_stdout, on_stderr=on_stderr)
        return self._run(wish, outlet, stdin=stdin, check=check, deadline=deadline)

    def _run(
        self, wish: arguments.Command, outlet: commands.Outlet, *, stdin: feeding.Source | None, check: bool,
        deadline: Deadline,
    ) -> ExecResult:  # fmt: skip
        result = commands.run(self._awake_agent(deadline), wish, outlet=outlet, stdin=stdin, deadline=deadline)
        if check and not result.success:
            raise spawning.failed(wish.command, result)
        return result

    # -- processes -----------------------------------------------------------------------------------------------------

    def spawn(
        self,
        command: str,
        args: Sequence[str] | None = None,
        *,
        shell: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        timeout: float | None = None,
        retain: str = wire.RETAIN_BLOCK,
        output_limit: int | None = None,
        rlimits: Mapping[str, arguments.RlimitValue] | None = None,
        watch: bool = False,
        id: str | None = None,  # noqa: A002 - what it is called in every answer, too
    ) -> Process:
        """Start a program and leave it running: see ``Process``. The arguments that ``exec`` has mean the same here.

        Args:
            command: The program; with ``shell`` a line of shell.
            args: Its arguments.
            shell: Run the line by ``bash -lc``, or ``sh -lc`` where there is no bash.
            cwd, env, user, rlimits, timeout: See ``exec``.
            stdin: Give it an input that ``write`` writes to; else it can read nothing.
            pty: Run it in a terminal of so many columns and rows; ``write`` then types.
            retain: ``block``: it waits for a slow reader (see ``Process.hold``), and for a minute when nobody reads.
                ``drop``: it never waits; of output that nobody has read in time the middle may be lost.
            output_limit: Bytes of its output that the sandbox keeps for later readers; 64 MiB if None.
            watch: Its output is going to be read at once: it comes with the same answer, which saves a round trip.
            id: By it, it can be attached to, from anywhere; made up if None. An id that is in use attaches, whatever
                the other arguments say.

        Raises:
            errors.UnsupportedError: the agent knows no processes.
            errors.ExecError: it was not started (see its subclasses).
            errors.AgentUnreachableError: no answer came; whether it was started is unknown.
        """
        wish = arguments.Command(
            command, args, is_shell=shell, cwd=self._cwd(cwd), env=env, timeout=timeout, user=user, rlimits=rlimits,
            has_stdin=stdin, pty=pty, retain=retain, output_limit=output_limit,
        )  # fmt: skip
        process_id = os.urandom(8).hex() if id is None else id
        return spawning.spawn(self._awake_agent(), wish, process_id=process_id, watch=watch, awake=self._awake_agent)

    def processes(self) -> list[ProcessInfo]:
        """The processes in it that its agent knows: those that run, and the latest that have ended. Oldest first."""
        return spawning.fetch_all(self._awake_agent())

    def attach_process(self, process_id: str, *, offset: int = 0) -> Process:
        """A process that was started before, by anybody.

        Args:
            process_id: Its id.
            offset: Bytes of its output to pass over; those that are not kept any more are a gap.

        Raises:
            errors.ProcessNotFoundError: the agent knows no such process (any more).
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise errors.UsageError(f"offset must be a number of bytes: {offset!r}")
        return spawning.attach(self._awake_agent(), process_id, offset=offset, awake=self._awake_agent)

    def open_native_shell(self, *, timeout: float | None = NATIVE_SHELL_SECONDS) -> NativeShell:
        """Open the service's own shell, which needs no agent: for a MicroVM launched with ``SHELL_INGRESS``.

        It is root's, tells no exit status, and ends with its connection; ``spawn`` with ``pty`` has no such limits.

        Raises:
            errors.UnsupportedError: the MicroVM was launched without that connector.
            errors.MicroVMEndedError: the MicroVM has ended.
        """
        from . import native

        return native.open_shell(self._link, timeout=timeout)

    def forward(
        self,
        *ports: int | str,
        local_port: int | None = None,
        bind: str = LOOPBACK,
        direct: bool = False,
        allow_hosts: Sequence[str] = (),
        poll_interval: float = POLL_SECONDS,
        on_remark: Callable[[str], None] | None = None,
    ) -> Forwarding:
        """Forward ports of this machine to ports of the sandbox, for HTTP and WebSockets, until that is closed.

        Args:
            ports: Ports in the sandbox: ``8000``, with a local one ``"8000:3000"``, or ranges ``"3000-3005"``.
            local_port: The local port of a single one, by default the same number; 0: any that is free.
            bind: The address to listen on. All who reach it reach the sandbox.
            direct: Do not use the agent's relay, by which the server sees requests for ``localhost``.
            allow_hosts: Names by which it may be asked, beside ``localhost``, addresses, names without a dot.
            poll_interval: Seconds between two looks at the sandbox's state, which wake nothing.
            on_remark: Told of problems, a line each; they are logged by default.
        """
        from . import forwarding

        return forwarding.open_forwarding(
            self._link, ports, local_port=local_port, bind=bind, is_direct=direct, allow_hosts=allow_hosts,
            poll_interval=poll_interval, on_remark=on_remark,
        )  # fmt: skip

    def read_file(self, path: str) -> bytes:
        """The same as ``files.read``."""
        return self.files.read(path)

    def write_file(self, path: str, content: bytes) -> None:
        """The same as ``files.write``."""
        self.files.write(path, content)

    # -- life ----------------------------------------------------------------------------------------------------------

    def suspend(self, *, timeout: float = STATE_SECONDS) -> None:
        """Freeze it with memory and disk, and wait until that is done. The next use resumes it.

        The record keeps that this was on purpose (``record.stopped_at``), and not for idleness. What is going on in it
        goes on after the next resume, but no connection to it survives.

        Raises:
            errors.MicroVMEndedError: it has ended.
            errors.WaitTimeoutError: it is not suspended in time.
        """
        life.suspend(self._link, deadline=Deadline(timeout))

    def resume(self, *, timeout: float = STATE_SECONDS) -> None:
        """Let a suspended sandbox go on, and wait until its agent answers. Fine if it runs already.

        Raises:
            errors.MicroVMEndedError: it has ended.
            errors.WaitTimeoutError: its agent does not answer in time.
        """
        life.resume(self._link, deadline=Deadline(timeout))

    start = resume

    def wait(self, *states: str, timeout: float | None = None) -> str:
        """Wait until the MicroVM is in one of these states of the service, and return it. This never wakes it.

        Args:
            states: What to wait for: TERMINATED if none is named. TERMINATING is too brief to be seen for sure:
                TERMINATED will do for it.
            timeout: Seconds; None for no end.

        Raises:
            errors.UsageError: there is no such state.
            errors.MicroVMEndedError: it ended, and that was not waited for.
            errors.MicroVMNotFoundError: the service does not know it (any more).
            errors.WaitTimeoutError: it is in none of the states in time.
        """
        return life.wait(self._link, states or (names.TERMINATED,), deadline=Deadline(timeout))

    def terminate(self, *, timeout: float = CALL_SECONDS) -> None:
        """End the MicroVM and forget the sandbox. Fine if it is gone already."""
        record = self.record
        launch.end(record, control=self._link.control(), deadline=Deadline(timeout))
        # Only now: had the call failed, the name would be all that leads to what still runs.
        self._link.records.remove(self.name, expected=record)
        if self._link.state != names.TERMINATED:  # whether it is that yet, the service knows
            self._link.state = names.TERMINATING

    stop = terminate
    kill = terminate

    def __enter__(self) -> Sandbox:
        self._entered_by = os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered_by != os.getpid():
            return  # a forked child leaves the block of its parent, who goes on in it
        try:
            self._end(because=error)
        except Exception:
            raise
        except BaseException as interruption:  # Ctrl+C half-way must not leave a MicroVM, or its name; a second one may
            self._end(because=interruption)
            raise

    # -- inside --------------------------------------------------------------------------------------------------------

    def _awake_agent(self, deadline: Deadline = NEVER) -> AgentClient:
        """The agent, unless we know that it cannot answer."""
        patience = Deadline(deadline.clamp(STATE_SECONDS))
        life.ready_for_use(self._link, deadline=patience)
        return self._link.agent()

    def _end(self, *, because: BaseException | None) -> None:
        """Terminate it, on the way out of a block that ``because`` has ended."""
        try:
            self.terminate()
        except errors.VmnestError as failure:
            if because is None:
                raise
            launch.tell_what_is_left(failure, because=because, name=self.name)

    def _cwd(self, given: str | None, deadline: Deadline = NEVER) -> str | None:
        workdir = self.files.workdir
        return workdir.find(deadline) if given is None else workdir.join(given, deadline)
