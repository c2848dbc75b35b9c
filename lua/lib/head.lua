-- head: the small text that holds all that a job is, apart from its bytes
--
--   head    = present ";" created ";" tail
--   present = letter attempts "," earlier "," folded [ mark last ]     zeros at the end are left out
--   letter  = w waiting (W: its payload is over 4 KiB), c completed, d dead, x cancelled, q quarantined
--   last    = verb "," token "," taken "," at "," attempt "," outcome letter "," due "," worker
--   mark    = "|" while the last settlement stands here alone, "!" once ledger and history hold it too
--   created = milliseconds [ "d" ]                                     d: offered with a delay
--   tail    = priority "," max attempts "," timeout "," flags "," keep "," size ";" name
--   flags   = c custom id, m metadata
--   numbers have at most 16 digits; whatever else differs from this form is damage, here and in redisq/calls/heads.py
--
-- A leased job's head still says waiting: that it is leased is said by its lease. Whether a waiting job is scheduled is
-- said by the sched index.
local number = require("lib.number")

local M = {}

local find, sub, match = string.find, string.sub, string.match
local text = number.text
local tails = {}

local DIGITS = 16

-- A rule per terminal state (see lib/retention), or none.
local function is_keep(keep)
  return keep == "" or match(keep, "^%d*:%d*/%d*:%d*/%d*:%d*/%d*:%d*$") ~= nil
end

-- What the producer fixed: parsed once per distinct tail of a call.
function M.tail(tail)
  local known = tails[tail]
  if known == nil then
    local priority, max, timeout, flags, keep, size, name =
      match(tail, "^(%-?%d*),?(%d*),?(%d*),?(%a*),?([%d:/]*),?(%d*);(.*)$")
    local whole = priority and priority ~= "-" and is_keep(keep)
      and math.max(#priority, #max, #timeout, #size) <= DIGITS
    known = whole and {
      priority = tonumber(priority) or 0,
      max = tonumber(max),
      timeout = timeout,
      custom = find(flags, "c", 1, true) ~= nil,
      meta = find(flags, "m", 1, true) ~= nil,
      keep = keep ~= "" and keep or nil,
      size = tonumber(size),
      name = name,
    } or false
    tails[tail] = known
  end
  return known
end

local function parse_last(job, last)
  local verb, token, taken, at, attempt, state, due, worker =
    match(last, "^(%a),([^,]*),(%d+),(%d+),(%d+),(%a),(%d*),([^,]*)$")
  if not verb then return false end
  job.last = { verb = verb, token = token, taken = taken, at = at, attempt = tonumber(attempt), state = state,
    due = due, worker = worker }
  return true
end

-- A job from its head, or nil when the head is damaged.
function M.parse(id, head)
  local first = find(head, ";", 1, true)
  local second = first and find(head, ";", first + 1, true)
  if not second then return nil end
  local present, created, delayed = sub(head, 1, first - 1), match(head, "^(%d+)(d?);", first + 1)
  local fixed = created and #created <= DIGITS and M.tail(sub(head, second + 1))
  if not fixed then return nil end
  local job = { id = id, created = created, delayed = delayed == "d", fixed = fixed, rest = sub(head, first),
    letter = present, attempts = 0, earlier = 0, folded = 0, mark = "" }
  if present ~= "w" and present ~= "W" then
    local letter, attempts, earlier, folded, mark, last = match(present, "^([wWcdxq])(%d*),?(%d*),?(%d*)([|!]?)(.*)$")
    if not letter or (mark == "") ~= (last == "") then return nil end
    if math.max(#attempts, #earlier, #folded) > DIGITS then return nil end
    job.letter = letter
    job.attempts, job.earlier, job.folded = tonumber(attempts) or 0, tonumber(earlier) or 0, tonumber(folded) or 0
    job.mark = mark
    if last ~= "" and not parse_last(job, last) then return nil end
  end
  job.waiting = job.letter == "w" or job.letter == "W"
  return job
end

local function counts(job)
  if job.folded > 0 then return text(job.attempts) .. "," .. text(job.earlier) .. "," .. text(job.folded) end
  if job.earlier > 0 then return text(job.attempts) .. "," .. text(job.earlier) end
  if job.attempts > 0 then return text(job.attempts) end
  return ""
end

-- The head text of a job as it is now.
function M.format(job)
  local last = job.last
  if not last then return job.letter .. counts(job) .. job.rest end
  return job.letter .. counts(job) .. job.mark .. last.verb .. "," .. last.token .. "," .. last.taken .. ","
    .. last.at .. "," .. text(last.attempt) .. "," .. last.state .. "," .. last.due .. "," .. last.worker .. job.rest
end

-- The letter of a waiting job.
function M.waiting(job)
  return job.fixed.size and "W" or "w"
end

return M
