-- touched: all that the transitions of jobs, and what follows from them, may touch
return {
  columns = { "head", "body", "meta", "lease", "leased", "sched", "ready", "ranked", "ghost", "bell", "broken",
    "completed", "dead", "cancelled", "quarantined", "groups", "aging", "seen", "result", "error", "attempts",
    "history", "progress", "waiters" },
  fields = { "stamp", "paused", "first", "ghosts", "rank_tail", "rank_head", "lease", "timeout", "max_attempts",
    "backoff", "keep", "dedup", "history", "attempt_cap", "transition_cap", "uncounted", "aged:completed", "aged:dead",
    "aged:cancelled", "aged:quarantined" },
}
