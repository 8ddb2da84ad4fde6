"""The working directory that a setting of this machine gives all sandboxes, in the place of their agents' own."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

from .. import errors, settings
from ..deadline import NEVER, Deadline

__all__ = ["Workdir"]


class Workdir:
    """Where commands begin and relative paths lead: ``AGENT_SANDBOX_WORKDIR``; unset, the agent decides.

    As an agent makes its own on first use, so this one is made. Safe for threads: to make it twice does no harm.

    Args:
        environ: Where the setting is looked up; this process's environment if None.
        make: Makes a directory in the sandbox, with those above it; one that is there already is fine.
    """

    def __init__(self, environ: Mapping[str, str] | None, *, make: Callable[[str, Deadline], object]) -> None:
        self._environ = environ
        self._make = make
        self._made = ""

    def find(self, deadline: Deadline = NEVER) -> str | None:
        """The directory, which is there then; None: the agent's own.

        Raises:
            errors.RemoteFileError: it cannot be made.
        """
        setting = settings.resolve("workdir", environ=self._environ)
        if setting.source == "default":
            return None
        path = str(setting.value)
        if path != self._made:
            self._ensure(path, deadline)
            self._made = path
        return path

    def join(self, path: str, deadline: Deadline = NEVER) -> str:
        """A path as the agent is told it: a relative one begins here.

        Raises:
            errors.RemoteFileError: the directory cannot be made.
        """
        # Who sends it names the argument that is no text.
        if not isinstance(path, str) or not path or path.startswith("/"):
            return path
        top = self.find(deadline)
        if top is None:
            return path
        return top if path == "." else posixpath.join(top, path)

    def _ensure(self, path: str, deadline: Deadline) -> None:
        try:
            self._make(path, deadline)
        except errors.UnsupportedError:
            pass  # an old agent and an image without mkdir: whoever needs the directory tells whether it is there
        except errors.RemoteFileError as error:
            error.add_hint("AGENT_SANDBOX_WORKDIR names that directory.")
            raise
