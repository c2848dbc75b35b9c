"""redisq beside other queues for Python, and beside the least that is possible, on one server, in turn.

python -m benchmarks peers [--rounds 5] [--only rq,huey] [--quick]
"""

from __future__ import annotations

from benchmarks.peers.harness import main

if __name__ == "__main__":
    main()
