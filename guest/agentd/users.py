"""Whom a command runs as: an entry of the system's own lists of users and groups."""

from __future__ import annotations

import os
import pwd

from . import wire
from .errors import RequestError, bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_ID = 2**32 - 2  # the number above it stands for "no change" in the system's calls
_FALLBACK_SHELL = b"/bin/sh"


class User:
    """One user. ``groups`` holds all of its groups, the first one (``gid``) too."""

    __slots__ = ("gid", "groups", "home", "name", "shell", "uid")

    def __init__(self, name: bytes, *, uid: int, gid: int, groups: tuple[int, ...], home: bytes, shell: bytes) -> None:
        self.name = name
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.home = home
        self.shell = shell

    @property
    def environment(self) -> dict[bytes, bytes]:
        """What a login sets."""
        return {b"HOME": self.home, b"USER": self.name, b"LOGNAME": self.name, b"SHELL": self.shell}


def find(wanted: str | int) -> User:
    """The user of that name, or else of that number; a number need not be in any list.

    Raises:
        RequestError: ``no_such_user``, or ``bad_argument`` for what can be no user.
    """
    if isinstance(wanted, bool) or not isinstance(wanted, (str, int)) or wanted == "":
        raise bad_argument("user", "must be a name or a number")
    if isinstance(wanted, str):
        for entry in _named(wanted):
            return _build(entry)
        if not (wanted.isascii() and wanted.isdigit() and len(wanted) <= 10):
            raise RequestError(400, wire.NO_SUCH_USER, f"no such user: {wanted!r}")
    number = int(wanted)
    if not 0 <= number <= _MAX_ID:
        raise bad_argument("user", f"must be a number up to {_MAX_ID}")
    try:
        return _build(pwd.getpwuid(number))
    except KeyError:
        # As for files that come from elsewhere: there is a number, and nobody who goes by it.
        name = str(number).encode("ascii")
        return User(name, uid=number, gid=number, groups=(number,), home=b"/", shell=_FALLBACK_SHELL)


def _named(name: str) -> Iterator[pwd.struct_passwd]:
    try:
        yield pwd.getpwnam(name)
    except (KeyError, ValueError):  # a name with NUL, or one that no bytes stand for, is nobody's either
        return


def _build(entry: pwd.struct_passwd) -> User:
    return User(
        os.fsencode(entry.pw_name),
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        home=os.fsencode(entry.pw_dir) or b"/",
        shell=os.fsencode(entry.pw_shell) or _FALLBACK_SHELL,
    )
