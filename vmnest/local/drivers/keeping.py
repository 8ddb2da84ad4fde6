"""What a VM wrote, kept as a layer of an image. See ``mounts`` for how both are laid out."""

from __future__ import annotations

import os

from . import mounts, removal


def keep_layer(written: str, target: str) -> None:
    """Turn the writable layer of a VM that has ended into a layer of an image, at ``target``, which is not there yet.

    Deleted files stay as overlayfs notes them, whiteouts and opaque directories: they hide what lies below.
    """
    for name in os.listdir(written):
        path = os.path.join(written, name)
        if name.endswith(mounts.WORK):
            removal.remove_tree(path)
            continue
        try:
            os.rmdir(path)
        except OSError:  # there is something in it
            os.rename(path, path.removesuffix(mounts.UPPER))
    os.rename(written, target)
