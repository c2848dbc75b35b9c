-- columns: the keys of an event queue, beside those that job queues have too (body, seen, broken)
--
--   ev         id -> header (lib/events/event)          log        active ids by sequence
--   ob:<id>    generation -> outcome                    deadlines  active ids by deadline
--   subs       name -> active generation                archives   archived ids by settlement
--   gens       generation -> its facts                  was        id -> header of what `seen` remembers
--   cursor     generation -> sequence that it has come to in the log, and its last take
--   leased:<g>, parked:<g>   ids in hand by lease end, by the time from which they can be taken again
--   lease:<g>  id -> what the generation has in hand    dead:<g>, error:<g>   its dead obligations, and why
--   retiring   removed generations that still have obligations, by removal
--   due, mort  generations by (at most) their first lease end, their first death
--   idle       generations with takers that wait        bell:<g>   what these block on
--   roster     sets of subscriptions by version         refs       block of versions -> events that it is kept for
--   dropped    generation -> obligations given up for max_backlog or idle_after
return {
  most = 1000,              -- active subscriptions
  -- all that the resolution of an obligation, and what follows from it, may touch
  resolving = { "ev", "body", "log", "deadlines", "archives", "gens", "cursor", "retiring", "due", "mort", "roster",
    "refs", "seen", "was", "broken", "idle", seldom = { "deadlines", "archives", "retiring", "mort", "broken" } },
  -- the same, and what goes with a generation
  removing = { "ev", "body", "log", "deadlines", "archives", "gens", "cursor", "retiring", "due", "mort", "roster",
    "refs", "seen", "was", "broken", "idle", "subs", "dropped" },
  subscribing = { "subs", "gens", "cursor", "roster", "refs" },
  -- what of an event can be read
  reading = { "ev", "body", "gens", "retiring", "roster", "broken" },
  renewing = { "ev", "gens", "retiring" },
  counting = { "ev", "log", "deadlines", "gens", "cursor", "dropped" },
  listing = { "ev", "log", "deadlines", "archives", "gens", "cursor", "retiring" },
  glancing = { "ev", "log", "archives", "mort" },
  sweeping = { "deadlines", "archives", "retiring", "due", "mort", "seen" },
  -- settings that the standing of an event depends on
  settings = { "on_completion", "archive_retention", "dead_retention", "dedup", "block", "stamp" },
}
