"""Which files of this machine tools may copy: what is below the folders that are allowed, and nothing else.

A path is resolved through its links first, and what comes of it must be in an allowed folder. Then the way to it is
walked from the root, each directory opened in the one above it and no link followed: so what is used is what was
checked, whatever is swapped for a link meanwhile. What is copied is opened by its name in the last of them.
"""

from __future__ import annotations

import contextlib
import os

from .. import errors, settings, systems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..sandbox import localfiles

__all__ = ["Policy", "from_settings"]

UNRESTRICTED = "unrestricted"
MOST_NAMED = 5
_ROOT = b"/"
# A directory that may be passed through, but not be read, cannot be opened for reading.
_WALK_FLAGS = systems.DIRECTORY | systems.NOFOLLOW | systems.CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class Policy:
    """The files of this machine that may be copied, and be replaced; see ``ops.copies.Host``.

    Args:
        folders: What is allowed, as it is named; None for everything.
        advice: What to say where nothing is allowed.
    """

    def __init__(self, folders: Sequence[str] | None, *, advice: str = "") -> None:
        self._folders = None if folders is None else [_resolve(each) for each in folders]
        self._advice = advice

    def describe(self) -> dict[str, object]:
        """What it allows, for a model."""
        if self._folders is None:
            return {"policy": UNRESTRICTED, "paths": []}
        return {"policy": "allowlist", "paths": [os.fsdecode(each) for each in self._folders]}

    def look(self, path: str) -> str | None:
        """See ``Host``."""
        from ..ops import copies
        from ..sandbox import localfiles

        try:
            with self.open(path) as place, localfiles.translated(place):
                return copies.kind_of(place.stat().st_mode)
        except errors.LocalFileNotFoundError:
            return None

    def resolve(self, path: str) -> str:
        """The path without links, for who reads it as a whole and by its name; there may be nothing yet.

        Raises:
            errors.HostPathRefusedError: it is not allowed.
            errors.LocalFileError: it is neither a file nor a directory, and to open it could take for ever.
        """
        real = os.fsdecode(_resolve(path))
        if self.look(real) not in ("file", "directory", None):
            shown = errors.quote(path, limit=200)
            raise errors.LocalFileError(f"{shown} on this machine is neither a file nor a directory")
        return real

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[localfiles.Place]:
        """See ``Host``.

        Raises:
            errors.HostPathRefusedError: it is not allowed.
            errors.LocalFileError: there is no such directory, or it was changed meanwhile.
        """
        from ..sandbox import localfiles

        *way, name = self._check(path)
        folder = _walk(path, way)
        try:
            yield localfiles.Place(name, folder=folder, shown=os.fsencode(path))
        finally:
            os.close(folder)

    def make_directory(self, path: str) -> None:
        """See ``Host``; the same is raised as by ``open``."""
        os.close(_walk(path, self._check(path), makes=True))

    def _check(self, path: str) -> list[bytes]:
        """The names on the way from the root to what the path leads to; of the root itself a dot."""
        real = _resolve(path)
        if self._folders is not None and not any(_is_in(real, each) for each in self._folders):
            raise self._refuse(path)
        return [name for name in real.split(b"/") if name] or [b"."]

    def _refuse(self, path: str) -> errors.HostPathRefusedError:
        shown = errors.quote(path, limit=200)
        variable = settings.SETTINGS["mcp_host_paths"].env
        if not self._folders:
            return errors.HostPathRefusedError(
                f"no path of this machine may be used: {shown}",
                hint=f"{self._advice} {variable} in the environment of the MCP server names the folders.".lstrip(),
            )
        allowed = ", ".join(errors.quote(os.fsdecode(each), limit=200) for each in self._folders[:MOST_NAMED])
        return errors.HostPathRefusedError(
            f"this path of this machine may not be used: {shown}",
            hint=f"Allowed is what is in {allowed}; {variable} in the environment of the MCP server names the folders.",
        )


def from_settings(*, environ: Mapping[str, str] | None = None) -> Policy:
    """The policy that AGENT_SANDBOX_MCP_HOST_PATHS and AGENT_SANDBOX_MCP_HOST_PATH_POLICY make.

    Without them it is the working directory; but not if the home directory is in it, or is it: a host that starts its
    servers there, or in ``/``, does not mean to give everything away.
    """
    if settings.text("mcp_host_path_policy", environ=environ) == UNRESTRICTED:
        return Policy(None)
    named = settings.resolve("mcp_host_paths", environ=environ).value
    if named is not None:
        assert isinstance(named, tuple)
        return Policy(named)
    here, home = _working_directory(), os.path.realpath(os.path.expanduser(b"~"))
    if here is None or here == _ROOT or _is_in(home, here):
        shown = "gone" if here is None else errors.quote(os.fsdecode(here), limit=200)
        return Policy((), advice=f"The working directory of the MCP server is {shown}, which is not taken for one.")
    return Policy((os.fsdecode(here),))


def _working_directory() -> bytes | None:
    try:
        return os.path.realpath(os.getcwdb())
    except OSError:  # it was removed
        return None


def _resolve(path: str) -> bytes:
    """The path without links and dots.

    Raises:
        errors.UsageError: it can be no path.
        errors.LocalFileError: it is relative to a working directory that is gone.
    """
    from ..sandbox import localfiles

    with localfiles.translated(path):
        return os.path.realpath(localfiles.to_bytes(path))


def _is_in(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _walk(path: str, names: Sequence[bytes], *, makes: bool = False) -> int:
    """The directory to which the names lead from the root, open. ``path`` is what to call it."""
    from ..sandbox import localfiles

    with localfiles.translated(path):
        folder = os.open(_ROOT, _WALK_FLAGS)
        for name in names:
            try:
                below = _enter(name, folder, makes=makes)
            except OSError as error:
                raise OSError(error.errno, error.strerror) from error  # without the name: it is the path that failed
            finally:
                os.close(folder)
            folder = below
    return folder


def _enter(name: bytes, folder: int, *, makes: bool) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, _WALK_FLAGS, dir_fd=folder)
    if makes:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    return os.open(name, _WALK_FLAGS, dir_fd=folder)
