"""A sweeper to be killed. Argument: namespace. The server is the one in $REDISQ_URL."""

from __future__ import annotations

import sys

from redisq import Engine, Sweeper

if __name__ == "__main__":
    Sweeper(Engine(namespace=sys.argv[1]), interval=0.01, limit=1).run()
