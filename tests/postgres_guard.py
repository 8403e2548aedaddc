"""
Keep a PostgreSQL for as long as the process that started this program lives, however that ends.

Each line of standard input is JSON and is answered by a word. An object starts the server with its `command`, its `environment`
and the `user` that it runs as, and is answered by `ready` when it takes connections; a number is a signal that ends it, answered
by `ended` when it has. When standard input ends the server is killed, and the folder that the argument names, where it lies, is
removed.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGQUIT

Process = subprocess.Popen[bytes]


def started(server: Process, folder: Path) -> str:
    """Wait until a server takes connections or has ended, as `pg_ctl` does: by the last line of the file that it writes."""
    file = folder / "data" / "postmaster.pid"
    while server.poll() is None:
        lines = file.read_text().split("\n") if file.exists() else []
        if len(lines) > 7 and lines[0] == str(server.pid) and lines[7].strip() == "ready":
            return "ready"
        time.sleep(0.01)
    return "ended"


def ended(server: Process, signal: int) -> str:
    server.send_signal(signal)
    server.wait()
    return "ended"


def main() -> None:
    folder, server = Path(sys.argv[1]), None
    try:
        with open(folder / "server.log", "ab") as log:
            for line in sys.stdin:
                asked = json.loads(line)
                if isinstance(asked, int):
                    assert server is not None
                    print(ended(server, asked), flush=True)
                    continue
                server = subprocess.Popen(
                    asked["command"],
                    cwd=folder,
                    env=asked["environment"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    **asked["user"],
                )
                print(started(server, folder), flush=True)
    finally:
        if server is not None:
            ended(server, SIGQUIT)
        shutil.rmtree(folder)


main()
