"""A program that runs one sandbox with the namespace driver and prints what came of it, as JSON.

``tests/support/cells.py`` starts it as this user and as a plain one. Standard input: ``{"folder", "command", "visible",
"writables", "system_interpreters", "max_seconds"}``. It imports vmnest from PYTHONPATH.
"""

import json
import os
import sys
import threading


def main() -> None:
    from vmnest.local.drivers import Launch, machine, namespace, selection

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
    over.wait(120)
    ended = running.ended
    driver.close()
    with open(os.path.join(folder, machine.CONSOLE_NAME), encoding="utf-8") as reader:
        console = reader.read()
    print(
        json.dumps(
            {
                "console": console,
                "ended": None if ended is None else [ended.exit_code, ended.signal, ended.reason],
                "left": sorted(os.listdir(folder)),
                "uid": cell.uid,
                "writable": cell.writable,
                "interpreter": cell.interpreter.path,
            }
        )
    )


main()
