"""The daemon: one per folder, from its lock to its end.

Order of the start: lock, log, keys, driver (its probe may refuse), what an earlier daemon left, listeners,
``daemon.json``, ready line. Order of the end: nobody may be sent here any more (``daemon.json`` goes first, under
``start.lock`` where nobody asked for the end), then VMs, listeners, threads; the lock goes with the process. A daemon
that is killed leaves its VMs with their supervisors: see ``adoption``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from .. import __version__, deadline, errors, rendezvous, settings
from ..wire import egress as rules
from . import (
    acceptor,
    account,
    adoption,
    api,
    builder,
    callers,
    console_logs,
    egress,
    front,
    httpd,
    iam_calls,
    image_builds,
    image_store,
    images,
    ledger,
    logs_calls,
    operations,
    proxy,
    records,
    s3_service,
    sts,
    timers,
    tokens,
    vms,
)
from .drivers import interface

_LOG = logging.getLogger(__name__)

IDLE_SECONDS = 600.0
_IDLE_CHECK_SECONDS = 15.0
_LOCK_SECONDS = 25.0  # the last one may be ending, and wait for VMs that hang

SelectDriver = Callable[..., interface.Driver]


@dataclass(frozen=True)
class Config:
    """What a daemon is started with."""

    folder: str
    environ: Mapping[str, str]
    idle_seconds: float = IDLE_SECONDS


class Daemon:
    """All parts of a running daemon. ``open``, ``wait``, ``close``, in this order, in the main thread."""

    def __init__(self, config: Config, *, select_driver: SelectDriver) -> None:
        self._config = config
        self._select_driver = select_driver
        # A signal's handler stops us, maybe in a thread that holds an Event's lock just then; a SimpleQueue has none.
        self._stop: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stop_reason = ""
        self._resources = contextlib.ExitStack()
        self._url = ""
        self._publishing = threading.Lock()  # guards the address and its file
        self._address: rendezvous.Daemon | None = None  # while it is to be published
        self._outlet = egress.Outlet(config.environ)
        self._vms: vms.VMs | None = None
        self._front: front.Front | None = None
        self._images: images.Images | None = None

    # -- the start -----------------------------------------------------------------------------------------------------

    def open(self) -> rendezvous.Daemon:
        """Make everything ready to serve, take over the VMs of an earlier daemon, and publish the address.

        Raises:
            errors.VmnestError: it cannot be; what was opened is closed.
        """
        try:
            return self._open()
        except BaseException:
            self._resources.close()
            raise

    def _open(self) -> rendezvous.Daemon:
        folder, environ = self._config.folder, self._config.environ
        keys = rendezvous.keys(folder)
        common = vms.Settings(
            folder=folder, disk_bytes=settings.number("local_disk", environ=environ), visible=self._visible()
        )
        driver = self._select_driver(
            folder=folder,
            minimum=settings.text("local_isolation", environ=environ),
            visible=common.visible,
            environ=environ,
        )
        self._resources.callback(driver.close)
        timing = timers.Timers()
        timing.start()
        self._resources.callback(timing.close)
        listener = _bind_control(folder)
        # Closed after the acceptor, whose it is by then: it may not have come to it yet.
        self._resources.callback(listener.close)
        serving = acceptor.Acceptor()
        serving.start()
        self._resources.callback(serving.close)
        seal = tokens.Seal(keys.secret_key)
        notes = ledger.Ledger(folder)
        kept = account.open_account(folder)
        outputs = console_logs.ConsoleLogs(kept.logs)
        outputs.start()
        self._resources.callback(outputs.close)
        self._vms = self._open_vms(
            driver,
            common,
            notes=notes,
            timing=timing,
            serving=serving,
            data_plane=proxy.Proxy(seal),
            outputs=outputs,
        )
        self._images = self._open_images(driver, common, self._vms, kept)
        control = self._control_plane(self._vms, self._images, kept, keys=keys, seal=seal)
        self._front = doors = _open_front(control, kept, folder=folder, keys=keys)
        self._url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        adoption.Adoption(self._vms, notes, folder=folder).run()
        self._address = address = rendezvous.Daemon(
            url=self._url, version=__version__, pid=os.getpid(), started_with=_started_with(environ)
        )
        rendezvous.write_daemon(folder, address)
        # From here on the VMs end with us. Should the start have failed, on a full disk say, they went on for the next.
        self._resources.callback(self._vms.close)
        self._resources.callback(self._images.close)
        self._images.open()
        serving.listen(listener, lambda sock: httpd.serve(sock, doors.respond), name="control")
        return address

    def _open_vms(
        self,
        driver: interface.Driver,
        common: vms.Settings,
        *,
        notes: ledger.Ledger,
        timing: timers.Timers,
        serving: acceptor.Acceptor,
        data_plane: proxy.Proxy,
        outputs: console_logs.ConsoleLogs,
    ) -> vms.VMs:
        def publish(record: records.Record) -> None:
            assert record.listener is not None
            serving.listen(
                record.listener, lambda sock: data_plane.serve(record, sock), name=f"endpoint {record.microvm_id}"
            )

        return vms.VMs(
            driver,
            common,
            timers=timing,
            publish=publish,
            retire=serving.forget,
            ledger=notes,
            outlet=self._outlet,
            outputs=outputs,
        )

    def _open_images(
        self, driver: interface.Driver, common: vms.Settings, opened: vms.VMs, kept: account.Account
    ) -> images.Images:
        def live() -> list[records.Spec]:
            return [record.spec for record in opened.all() if not record.is_ended]

        folder = self._config.folder
        maker = builder.Builder(
            driver, folder, way_out=self._open_gate, disk_bytes=common.disk_bytes, visible=common.visible
        )
        return images.Images(
            image_store.Store(folder),
            image_builds.Workshop(maker, kept.objects, logs=kept.logs),
            images.Neighbours(kept.tags, kept.roles.exists, live=live, connector_state=kept.connectors.state_of),
            created_at=_made_at(folder),
        )

    def _open_gate(self, allowed: Sequence[str], log: Callable[[str], None]) -> egress.Gate:
        """The way out for a step of a build."""
        return egress.Gate(rules.parse(allowed), log, outlet=self._outlet)

    def _control_plane(
        self,
        opened: vms.VMs,
        known: images.Images,
        kept: account.Account,
        *,
        keys: rendezvous.Keys,
        seal: tokens.Seal,
    ) -> api.ControlPlane:
        cloud = operations.Cloud(vms=opened, images=known, tags=kept.tags, connectors=kept.connectors, seal=seal)
        return api.ControlPlane(
            cloud,
            keys=keys,
            own_routes={
                ("GET", rendezvous.STATUS_PATH): lambda: self._status(opened, known),
                ("POST", rendezvous.SHUTDOWN_PATH): self._shut_down,
                ("POST", rendezvous.RETIRE_PATH): lambda: self._retire(opened, known),
            },
        )

    def _visible(self) -> tuple[str, ...]:
        value = settings.resolve("local_visible", environ=self._config.environ).value
        assert isinstance(value, tuple)
        return value

    # -- its own calls -------------------------------------------------------------------------------------------------

    def _status(self, opened: vms.VMs, known: images.Images) -> api.Own:
        counts: dict[str, int] = {}
        for record in opened.all():
            counts[record.state] = counts.get(record.state, 0) + 1
        return api.Own(
            {
                "version": __version__,
                "pid": os.getpid(),
                "url": self._url,
                "folder": self._config.folder,
                "driver": opened.driver.name,
                "isolation": opened.driver.isolation,
                "writable": opened.driver.writable,
                "microvms": counts,
                "builds": known.builds(),
                "idle_seconds": min(opened.idle_seconds(), known.idle_seconds()),
                "idle_exit_seconds": self._config.idle_seconds,
            }
        )

    def _shut_down(self) -> api.Own:
        # Before the answer: who reads it finds no address of a daemon that is about to end.
        self._withdraw()
        return api.Own({}, then=lambda: self.stop("asked to"))

    def _retire(self, opened: vms.VMs, known: images.Images) -> api.Own:
        if not known.retire():
            return api.Own({"retired": False})
        if not opened.retire():
            known.reopen()
            return api.Own({"retired": False})
        self._withdraw()
        return api.Own({"retired": True}, then=lambda: self.stop("a newer one takes over"))

    def _withdraw(self) -> None:
        with self._publishing:
            self._address = None
            rendezvous.remove_daemon(self._config.folder, pid=os.getpid())

    def _publish_again(self) -> None:
        """Be found, whoever cleaned the address away or damaged it. Nobody else may write it: we hold the lock."""
        with self._publishing:
            if self._address is None or rendezvous.read(self._config.folder) is not None:
                return
            try:
                rendezvous.write_daemon(self._config.folder, self._address)
            except errors.LocalCloudError as error:
                _LOG.warning("the address is not published: %s", error)

    # -- running and the end -------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Make ``wait`` return. Safe in a signal handler."""
        self._stop_reason = self._stop_reason or reason
        self._stop.put(None)

    def wait(self, lock: rendezvous.Lock) -> None:
        """Serve until somebody asks for the end, nothing has run for long enough, or the folder was removed.

        Nobody can find a daemon without its folder: its VMs would be left to run for hours.
        """
        _LOG.info("serving %s", self._url)
        while not self._is_stopped_within(min(_IDLE_CHECK_SECONDS, self._config.idle_seconds / 4)):
            if lock.is_orphaned:
                self.stop("its folder was removed")
            elif self._is_idle() and self._leave():
                break
            else:
                self._publish_again()
        _LOG.info("ending: %s", self._stop_reason)

    def _is_stopped_within(self, seconds: float) -> bool:
        try:
            self._stop.get(timeout=seconds)
        except queue.Empty:
            return False
        return True

    def _is_idle(self) -> bool:
        longest = self._config.idle_seconds
        parts = (self._vms, self._images, self._front)
        return all(part is not None and part.idle_seconds() >= longest for part in parts)

    def _leave(self) -> bool:
        """End for want of work, unless somebody is just coming."""
        try:
            # Whoever holds the lock is about to look for us: stay a while longer.
            with rendezvous.start_lock(self._config.folder, deadline.Deadline(0)):
                if not self._is_idle():
                    return False
                self._withdraw()
        except errors.WaitTimeoutError:
            return False
        self.stop("idle")
        return True

    def close(self) -> None:
        """End everything, VMs first."""
        with contextlib.suppress(OSError):
            self._withdraw()
        self._resources.close()


def run(config: Config, *, ready: Callable[[bytes], None], select_driver: SelectDriver) -> int:
    """A daemon's whole life, in a process that is one already; its exit status.

    Args:
        config: What it is started with.
        ready: Gets the ready line.
        select_driver: As ``drivers.select``.
    """
    try:
        lock = rendezvous.daemon_lock(config.folder, deadline.Deadline(_LOCK_SECONDS))
        lock.take()
        rendezvous.remove_daemon(config.folder)  # of one that was killed: nobody must be sent there while we start
        daemon = Daemon(config, select_driver=select_driver)
        address = daemon.open()
    except errors.VmnestError as error:
        _LOG.error("cannot start: %s", error.message)
        ready(rendezvous.build_not_ready(error))
        return error.exit_status
    except Exception as error:
        _LOG.exception("cannot start")
        ready(rendezvous.build_not_ready(errors.LocalDaemonError(f"the local daemon cannot start: {error}")))
        return errors.EXIT_FAILED
    try:
        _handle_signals(daemon)
        ready(rendezvous.build_ready(address))
        daemon.wait(lock)
    finally:
        daemon.close()
        lock.release()
    return 0


def _open_front(control: api.ControlPlane, kept: account.Account, *, folder: str, keys: rendezvous.Keys) -> front.Front:
    known = callers.Callers(keys)
    return front.Front(
        control.answer,
        s3=s3_service.S3(kept.objects, folder=folder, keys=keys),
        access_key=keys.access_key,
        others={
            iam_calls.SERVICE: iam_calls.Iam(kept.roles).service(known).answer,
            sts.SERVICE: sts.service(known).answer,
            logs_calls.SERVICE: logs_calls.LogsService(kept.logs, known=known).answer,
        },
    )


def _handle_signals(daemon: Daemon) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        daemon.stop(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _bind_control(folder: str) -> socket.socket:
    """The control port of the last time if it is free, so that what others noted stays true; else a new one."""
    kept = rendezvous.kept_port(folder)
    if kept:
        try:
            return acceptor.bind(kept)
        except OSError as error:
            _LOG.warning("the control port %d is taken, another one is used: %s", kept, error)
    listener = acceptor.bind()
    try:
        rendezvous.keep_port(folder, listener.getsockname()[1])
    except errors.LocalCloudError as error:
        _LOG.warning("the control port cannot be kept: %s", error)
    return listener


def _started_with(environ: Mapping[str, str]) -> dict[str, str]:
    variables = [settings.SETTINGS[name].env for name in rendezvous.ITS_SETTINGS]
    return {variable: environ[variable] for variable in variables if environ.get(variable)}


def _made_at(folder: str) -> float:
    """When this local cloud was made: when it got its keys."""
    return os.stat(os.path.join(folder, rendezvous.KEYS_FILE)).st_mtime
