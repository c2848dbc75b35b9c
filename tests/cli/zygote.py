"""A process that has imported the command line already, and forks one more for each command: that spares its start.

It reads a request a line, `{"words", "env", "folder", "files"}`, runs `redisq` with the three files as standard input,
output and error, and answers with the exit code.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from redisq.cli import main


def run(request: dict[str, Any]) -> None:
    """Becomes the command; does not return."""
    for number, (path, flags) in enumerate(zip(request["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(path, flags), number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(at, mode, encoding="utf-8") for at, mode in enumerate("rww"))
    sys.argv = ["redisq", *request["words"]]
    code = 70
    try:
        main(prog_name="redisq")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve()
