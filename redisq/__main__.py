"""`python -m redisq` is the `redisq` command."""

from __future__ import annotations

from redisq.cli import main

if __name__ == "__main__":
    main(prog_name="redisq")
