-- head: the small text that holds all that a job is, apart from its bytes
--
--   head    = present ";" created ";" tail
--   present = letter attempts "," earlier "," folded [ mark last ]     zeros at the end are left out
--   letter  = w waiting (W: its payload is over 4 KiB), c completed, d dead, x cancelled, q quarantined
--   last    = verb "," at "," outcome letter "," due "," the lease as it stood (lib/lease)
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

local find, sub, match, byte = string.find, string.sub, string.match, string.byte
local text = number.text
local tails = {}

local DIGITS = 16
local WAITING = byte("w")

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
  local verb, at, state, due, token, attempt, mark, taken, worker =
    match(last, "^(%a),(%d+),(%a),(%d*),([^,]*),(%d+),([suSU]),(%d+),([^,]*)$")
  if not verb or math.max(#taken, #at, #attempt) > DIGITS then return false end
  job.last = { verb = verb, at = at, state = state, due = due, token = token, attempt = tonumber(attempt),
    taken = taken, worker = worker, lease = table.concat({ token, attempt, mark, taken, worker }, ",") }
  return true
end

local function parse_present(job, present)
  local letter, attempts, earlier, folded, mark, last = match(present, "^([wWcdxq])(%d*),?(%d*),?(%d*)([|!]?)(.*)$")
  if not letter or (mark == "") ~= (last == "") then return false end
  if math.max(#attempts, #earlier, #folded) > DIGITS then return false end
  job.letter, job.mark = letter, mark
  job.attempts, job.earlier, job.folded = tonumber(attempts) or 0, tonumber(earlier) or 0, tonumber(folded) or 0
  job.waiting = letter == "w" or letter == "W"
  return last == "" or parse_last(job, last)
end

-- A job from its head, or nil when the head is damaged.
function M.parse(id, head)
  local first = find(head, ";", 1, true)
  local created, start = match(head, "^(%d+)d?;()", first and first + 1)
  if not first or not created or #created > DIGITS then return nil end
  local tail = sub(head, start)
  local fixed = tails[tail]
  if fixed == nil then fixed = M.tail(tail) end
  if not fixed then return nil end
  local job = { id = id, head = head, first = first, fixed = fixed, letter = "w", waiting = true,
    attempts = 0, earlier = 0, folded = 0, mark = "" }
  if first == 2 and byte(head) == WAITING then return job end
  return parse_present(job, sub(head, 1, first - 1)) and job or nil
end

-- What the producer fixed of a job that waits, or is leased, and was never settled; nil for any other head.
function M.unsettled(head)
  local created, start = match(head, "^[wW];(%d+)d?;()")
  if not created or #created > DIGITS then return nil end
  local tail = sub(head, start)
  local fixed = tails[tail]
  if fixed == nil then fixed = M.tail(tail) end
  return fixed or nil
end

-- What the producer fixed of a job, from its head; nil when that is damaged.
function M.fixed(head)
  local _, second = find(head, "^[^;]*;%d+d?;")
  return second and M.tail(sub(head, second + 1)) or nil
end

-- When it was offered, and whether with a delay.
function M.created(job)
  return match(job.head, "^(%d+)(d?)", job.first + 1)
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
  local rest = sub(job.head, job.first)
  if not last then return job.letter .. counts(job) .. rest end
  return job.letter .. counts(job) .. job.mark .. last.verb .. "," .. last.at .. "," .. last.state .. "," .. last.due
    .. "," .. last.lease .. rest
end

-- The letter of a waiting job.
function M.waiting(job)
  return job.fixed.size and "W" or "w"
end

return M
