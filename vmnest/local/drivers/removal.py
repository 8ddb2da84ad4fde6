"""Removal of a tree that a sandbox wrote: of any depth, with any modes, in constant memory and descriptors.

Stand-alone (see ``runtime``). The tree's writer was hostile: it may be deeper than a path can be long, and have
directories of mode 0 (overlayfs leaves one itself). So nothing recurses and nothing goes by path: directories found
below the first level are moved up to it under fresh names, and go in a later round.
"""

from __future__ import annotations

import fcntl
import os
import stat

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NICENESS = 10


def main() -> None:
    """Remove all trees in the working directory, in a process of our own; see ``rubbish``."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.nice(_NICENESS)
    folder = os.open(".", _OPEN_FOLDER)
    fcntl.flock(folder, fcntl.LOCK_EX)  # another remover may be at it
    for name in os.listdir(folder):
        try:
            remove_tree(name)
        except OSError:  # a faulty disk, say: the others go all the same, and this one is tried again the next time
            continue


def empty_folder(folder: int) -> None:
    """Remove everything in the directory that the descriptor ``folder`` is open on; the directory itself stays."""
    serial = 0
    while names := os.listdir(folder):
        for name in names:
            if _is_folder(name, folder):
                serial = _dissolve(name, folder, serial)
            else:
                os.unlink(name, dir_fd=folder)


def remove_tree(path: str) -> None:
    """Remove a directory and everything in it; nothing there is fine."""
    try:
        folder = os.open(path, _OPEN_FOLDER)
    except FileNotFoundError:
        return
    try:
        empty_folder(folder)
    finally:
        os.close(folder)
    os.rmdir(path)


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode)


def _dissolve(name: str, top: int, serial: int) -> int:
    """Remove the directory ``name`` of ``top``; its own subdirectories become entries of ``top``."""
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, _OPEN_FOLDER, dir_fd=top)
    try:
        for child in os.listdir(folder):
            if not _is_folder(child, folder):
                os.unlink(child, dir_fd=folder)
                continue
            # To move a directory, its ".." changes: that takes write permission on the directory itself.
            os.chmod(child, 0o700, dir_fd=folder)
            serial = _move_up(child, folder=folder, top=top, serial=serial)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
    return serial


def _move_up(child: str, *, folder: int, top: int, serial: int) -> int:
    """Rename ``child`` into ``top`` under a name that is free there; returns the serial for the next one."""
    while True:
        serial += 1
        fresh = f".going-{serial}"
        try:
            os.lstat(fresh, dir_fd=top)
        except FileNotFoundError:
            os.rename(child, fresh, src_dir_fd=folder, dst_dir_fd=top)
            return serial
