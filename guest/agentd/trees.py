"""Directory trees as tar streams, for both ends: ``pack`` one, ``unpack`` another.

A tree keeps its names as bytes, permission bits, times of change to the nanosecond, empty directories, symbolic links
as they are, and hard links among its own files. It does not keep owners (what is unpacked belongs to who unpacks it;
a file that is replaced keeps its owner), setuid, setgid and sticky bits, extended attributes, and holes.

Packing never waits: only regular files are opened. Sockets, named pipes and devices are left out and told, as are what
cannot be read and the kernel's own file systems. A file that changes meanwhile is packed with the length that it had at
first, and told. What is told travels in the stream and ends up in the summary of who unpacks it.

Unpacking trusts neither the archive nor what is in the folder. Every directory is opened from the one above it and no
link is followed, so nothing lands outside, whatever is planted before or meanwhile. Absolute names and ``..`` refuse
the whole archive. Devices are left out and told; so is a link that leads out of the tree: one whose target is absolute,
goes up beyond the tree's root, or has ``..`` behind a name (which could be another link). Each file is written under
another name first and renamed, which replaces a file or link of its name. Directories that were there keep their
permissions and times; a new one gets them when the archive leaves it, so that it may be read-only. Nothing is forced to
the disk: after a crash of the machine the upload is to be repeated.
"""

from __future__ import annotations

from .archives import ArchiveError
from .packing import CHANGED, NO_FILES, Packing, pack
from .unpacking import LEADS_OUT, Summary, UnsafeMemberError, leads_out, split_name, unpack

__all__ = [
    "CHANGED",
    "LEADS_OUT",
    "NO_FILES",
    "ArchiveError",
    "Packing",
    "Summary",
    "UnsafeMemberError",
    "leads_out",
    "pack",
    "split_name",
    "unpack",
]
