"""``python -m agentd.serve``: the agent's API and the hooks, side by side in one process.

The main thread waits for a signal, or for a server that died; either ends the process, and with it every command.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .config import Config
    from .journal import Events
    from .routes import Routes
    from .server import Listener
    from .state import State

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_END_GRACE_SECONDS = 0.3
_SERVER_DIED = b"\0"
_NEVER_POLL_SECONDS = 86400.0  # serve_forever looks for a shutdown that is never asked for


def main() -> int:
    """Serve until a signal comes; the exit status."""
    _leave_working_directory()
    _prepare_process()
    if os.getpid() == 1:
        from . import reaper

        reaper.split()
    from . import config, errors, journal

    try:
        settings = config.load(os.environ)
    except errors.ConfigError as error:
        journal.report(str(error))
        return _EXIT_USAGE
    return _serve(settings)


def _serve(settings: Config) -> int:
    # Loaded after the fork of process 1, so that it stays small.
    from . import __version__, config, hooks, identity, journal, process, relay, routes, server, state

    agent_state = state.State()
    events = journal.Events(is_wanted=settings.log == config.LOG_EVENTS)
    api = routes.Table(_build_routes(settings, agent_state, events))
    try:
        place = f"{settings.bind}:{settings.port} (AGENTD_BIND, AGENTD_PORT)"
        agent = server.Listener((settings.bind, settings.port), api.respond)
        hook_routes = hooks.Hooks(
            agent_state,
            identity=identity.Identity(settings.identity_path),
            drain_seconds=settings.suspend_drain_seconds,
            agent_address=(_reachable(settings.bind), agent.server_port),
            events=events,
        )
        place = f"{settings.bind}:{settings.hook_port} (AGENTD_BIND, AGENTD_HOOK_PORT)"
        hook = server.Listener((settings.bind, settings.hook_port), hook_routes.respond)
    except OSError as error:
        journal.report(f"cannot listen on {place}: {server.explain_bind(error)}")
        return _EXIT_FAILED
    agent.relay = relay.Relay(refused=(agent.server_port, hook.server_port))
    waker = _catch_signals()
    _start(agent, name="agentd-api", waker=waker[1])
    _start(hook, name="agentd-hooks", waker=waker[1])
    agent_state.serving.set()
    events.tell(f"{__version__} listens on {settings.bind}, port {agent.server_port}, hooks {hook.server_port}")
    if settings.ready_fd is not None:
        _announce(settings.ready_fd, agent, hook)
    cause = os.read(waker[0], 1)
    events.tell("ending: a server died" if cause == _SERVER_DIED else f"ending: {process.name_signal(cause[0])}")
    agent_state.groups.end_all(grace=_END_GRACE_SECONDS)
    return _EXIT_FAILED if cause == _SERVER_DIED else 0


def _build_routes(settings: Config, agent_state: State, events: Events) -> Iterator[Routes]:
    """The parts of the API, one after the other."""
    from . import (
        commands,
        config,
        drain,
        file_routes,
        handlers,
        launch,
        limits,
        loop,
        process,
        process_routes,
        processes,
        retained,
        running,
        stats,
    )

    own_root = os.fsencode(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = config.command_environment(os.environb, own_root=own_root)
    workdir = os.fsencode(settings.workdir)
    builder = commands.Commands(workdir=workdir, environment=environment)
    files = limits.OwnFiles()
    files.raise_limit()
    launcher = launch.Launcher(files=files)
    pipes = drain.Drain()
    runner = process.Runner(groups=agent_state.groups, drain=pipes, launcher=launcher, events=events)
    yield handlers.Api(agent_state, runner=runner, builder=builder).routes()
    turns = loop.Loop()
    turns.start()
    services = running.Services(
        loop=turns, groups=agent_state.groups, drain=pipes, store=retained.Store(), events=events
    )
    known = processes.Processes(agent_state, launcher=launcher, services=services)
    yield process_routes.ProcessApi(known, builder=builder, loop=turns).routes()
    yield file_routes.FileApi(workdir=workdir).routes()
    yield stats.StatsApi(workdir=workdir).routes()


def _leave_working_directory() -> None:
    """Take out of the import path what ``-m`` put there: files of the user must not stand in for our imports."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # a folder that is gone has no files
        return
    if sys.path and sys.path[0] in {"", here}:
        del sys.path[0]


def _prepare_process() -> None:
    """Undo what a careless parent may have left: closed standard streams, an ignored SIGCHLD, blocked signals."""
    import signal

    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
        os.set_inheritable(descriptor, True)
    # With SIGCHLD ignored the kernel reaps, and every exit code is lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _catch_signals() -> tuple[int, int]:
    """A pipe that gets one byte for each TERM or INT, whichever thread the kernel chose."""
    import signal

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)
    return reader, writer


def _ignore(number: int, frame: object) -> None:
    """The byte in the wakeup pipe is what counts; without a handler there would be none."""


def _start(listener: Listener, *, name: str, waker: int) -> None:
    import threading

    from . import journal

    def run() -> None:
        # A process without one of its two servers would look alive and be useless: end it, whatever the reason.
        try:
            listener.serve_forever(_NEVER_POLL_SECONDS)
        except Exception:  # the last line of this thread
            journal.report_exception(f"the server {name} died")
        finally:
            os.write(waker, _SERVER_DIED)

    threading.Thread(target=run, name=name, daemon=True).start()


def _announce(descriptor: int, agent: Listener, hook: Listener) -> None:
    """Tell whoever started us the true ports, in one line, and close."""
    import json

    line = json.dumps({"port": agent.server_port, "hook_port": hook.server_port}) + "\n"
    try:
        os.write(descriptor, line.encode("ascii"))
    except BrokenPipeError:
        return  # nobody waits any more: no reason to stop serving
    finally:
        os.close(descriptor)


def _reachable(bind: str) -> str:
    """The address at which the agent reaches itself."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104 - it is looked for, not bound


def run() -> None:
    """Run as a program. Threads that wait on clients must not hold up the end."""
    os._exit(main())


if __name__ == "__main__":
    run()
