"""A program that runs one sandbox with the namespace driver and prints what came of it, as JSON.

``tests/support/cells.py`` starts it as this user and as a plain one. Standard input: ``{"folder", "command", "visible",
"writables", "system_interpreters", "freeze"}``: with ``freeze``, the sandbox is frozen and thawed once it has printed
something, and how much it printed meanwhile is told. It imports vmnest from PYTHONPATH.
"""

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmnest.local.drivers import machine


def freeze_once(running: "machine.NamespaceMachine", console: str) -> int:
    """By how much the console grew while the sandbox was frozen."""
    while not os.path.getsize(console):
        time.sleep(0.01)
    running.freeze()
    time.sleep(0.2)  # what it printed before is on its way
    before = os.path.getsize(console)
    time.sleep(0.2)
    grown = os.path.getsize(console) - before
    running.thaw()
    return grown


def main() -> None:
    from vmnest.local.drivers import Launch, channel, namespace, selection

    request = json.load(sys.stdin)
    cell = selection.prepare(
        folder=request["folder"],
        visible=request["visible"],
        environ=os.environ,
        writables=request["writables"],
        **({} if request["system_interpreters"] is None else {"system_interpreters": request["system_interpreters"]}),
    )
    driver = namespace.NamespaceDriver(cell)
    folder = os.path.join(request["folder"], "vm")
    os.mkdir(folder, 0o700)
    over = threading.Event()
    launch = Launch(
        microvm_id="test",
        folder=folder,
        environment={},
        memory_mib=512,
        disk_bytes=2**28,
        max_seconds=120,
        command=tuple(part.replace("{python}", cell.interpreter.path) for part in request["command"]),
    )
    running = driver.start(launch, on_end=lambda _ended: over.set())
    grown = freeze_once(running, os.path.join(folder, channel.CONSOLE_NAME)) if request["freeze"] else None
    over.wait(120)
    ended = running.ended
    driver.close()
    with open(os.path.join(folder, channel.CONSOLE_NAME), encoding="utf-8") as reader:
        console = reader.read()
    print(
        json.dumps(
            {
                "console": console,
                "ended": None if ended is None else [ended.exit_code, ended.signal, ended.reason],
                "facts": running.facts,
                "grown": grown,
                "left": sorted(os.listdir(folder)),
                "uid": cell.uid,
                "writable": cell.writable,
                "interpreter": cell.interpreter.path,
            }
        )
    )


main()
