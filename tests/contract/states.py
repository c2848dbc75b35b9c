"""The legal moves: the state table, and nothing else."""

from __future__ import annotations

_WAITING = ("ready", "scheduled")
_TERMINAL = ("completed", "dead", "cancelled", "quarantined")

JOB_MOVES = {
    *(("(new)", state) for state in _WAITING),  # offer
    ("scheduled", "ready"),  # due, promote
    ("ready", "leased"),  # take
    ("leased", "completed"),  # ack
    *(("leased", state) for state in (*_WAITING, "dead")),  # fail, lapse, release
    ("leased", "quarantined"),
    *((state, "cancelled") for state in (*_WAITING, "leased")),  # cancel
    ("dead", "ready"),  # retry
    ("quarantined", "ready"),
    *((state, "removed") for state in (*_WAITING, *_TERMINAL)),  # remove, purge, retention
}

EVENT_MOVES = {
    *(("(new)", status) for status in ("active", "completed", "expired")),  # emit
    *(("active", status) for status in ("completed", "expired")),
    *((status, "removed") for status in ("completed", "expired")),
    # what one subscription owes
    *(("pending", status) for status in ("acknowledged", "waived", "dead")),
    ("dead", "pending"),  # retry
}
