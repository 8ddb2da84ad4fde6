"""A guest's directory becomes a zip: 200 MB in 5,000 small files and 12 large ones, of mixed compressibility."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import processes
from figures import Figure

MB = 1_000_000
SIZE_MB = 200
FILES = 5000
_WORDS = (
    "the",
    "of",
    "and",
    "a",
    "to",
    "in",
    "is",
    "you",
    "that",
    "it",
    "he",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
    "his",
)
_PIECE = 1 << 20

# Each side writes its zip where its last argument says, so that the sizes can be compared.
OURS = (
    "import shutil, sys; from vmnest import guest_image\n"
    "with guest_image.pack(sys.argv[1]) as package, open(sys.argv[2], 'wb') as file:\n"
    "    shutil.copyfileobj(package.file, file, 1 << 20)"
)
THEIRS = (
    "import shutil, sys; from agent_sandbox.infra.archive import zip_dir\n"
    "with open(sys.argv[2], 'wb') as file:\n"
    "    shutil.copyfileobj(zip_dir(sys.argv[1]), file, 1 << 20)"
)


def measure(*, ours: Path, theirs: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """Time, size and memory, both sides with zlib."""
    tree = folder / "tree"
    make_tree(tree)
    zips = [folder / "ours.zip", folder / "theirs.zip"]
    commands = [
        pack_command(side, program, tree=tree, made=made)
        for side, program, made in zip((ours, theirs), (OURS, THEIRS), zips, strict=True)
    ]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    mine, other = processes.time_in_turn(commands, environ=environ, rounds=rounds)
    yield Figure("zip of 200 MB", "ms", mine, other, goal=0.45)
    mine, other = ([made.stat().st_size / MB] for made in zips)
    yield Figure("zip of 200 MB: its size", "MB", mine, other, goal=1.0)
    mine, other = ([processes.watch_peak_mib(command, environ=environ)] for command in commands)
    yield Figure("zip of 200 MB: peak", "MiB", mine, other, goal=0.7)


def pack_command(environment: Path, program: str, *, tree: Path, made: Path) -> list[str]:
    """What writes a tree's zip."""
    return [str(environment / "bin/python"), "-c", program, str(tree), str(made)]


def make_tree(root: Path, *, megabytes: int = SIZE_MB) -> None:
    """Text, noise, and what is between them."""
    chance = random.Random(7)
    left = megabytes * MB
    for number in range(FILES * megabytes // SIZE_MB):
        path = root / f"src{number % 100:02}" / f"f{number:05}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = max(40, min(60_000, int(chance.lognormvariate(8.0, 0.8))))
        left -= path.write_text(" ".join(chance.choices(_WORDS, k=size // 4))[:size])
    (root / "Dockerfile").write_text("FROM scratch\n")
    kinds = {"noise": left // 4, "mixed": left // 2, "hollow": left // 4}
    for kind, size in kinds.items():
        for number in range(4):
            with open(root / f"{kind}{number}.bin", "wb") as file:
                for start in range(0, size // 4, _PIECE):
                    file.write(_make_piece(kind, chance)[: min(_PIECE, size // 4 - start)])


def _make_piece(kind: str, chance: random.Random) -> bytes:
    if kind == "noise":
        return chance.randbytes(_PIECE)
    if kind == "mixed":
        pattern = (chance.randbytes(48) + bytes(range(16))) * (_PIECE // 64)
        return b"".join(pattern[at : at + 64] + chance.randbytes(32) for at in range(0, _PIECE, 96))
    return b"".join(bytes(500) + chance.randbytes(12) for _ in range(_PIECE // 512))
