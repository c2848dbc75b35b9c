-- past: the rows of a job's attempts and transitions
--
-- The last settlement stands in the head alone, and the offer is plain from `created`: a job that succeeds at its first
-- attempt has no row anywhere. When a newer thing happens, the older settlement is folded: its rows go to the columns.
--
--   attempts row = number "," started "," finished "," outcome letter "," length ":" worker "," detail
--   history row  = ordinal "," at "," state letter "," attempt "," length ":" detail
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local detail = lazy("lib.detail")

local M = {}

local CUT = 1024
local FAILS = { f = true, l = true, q = true }
local text, match, sub = number.text, string.match, string.sub

-- What the ledger keeps of a failure's detail.
function M.brief(failure)
  return detail.cut(failure, CUT)
end

-- The outcome letter of a settlement, or nil when it was no attempt (a release).
function M.outcome(last)
  if last.state == "x" then return "x" end
  if last.verb == "r" or last.verb == "u" then return nil end
  if last.verb == "a" then return "c" end
  if last.verb == "f" then return last.state == "d" and "d" or "f" end
  return last.verb
end

-- Whether a settlement has a failure of its own; a lapse that ended a cancelled job has none.
function M.failed(last)
  return FAILS[last.verb] and not (last.verb == "l" and last.state == "x")
end

local function read(column, id)
  return queue.here[column] and redis.call("HGET", queue.key[column], id) or ""
end

-- Drops rows from the start until `count` are left of those numbered up to `newest`.
local function newest_rows(rows, newest, count)
  while true do
    local first, size, at = match(rows, "^(%d+),[%w,]-,(%d+):()")
    if not first or newest - tonumber(first) < count then return rows end
    rows = sub(rows, at + size)
  end
end

local function fold_attempt(job, last, failure)
  local outcome = M.outcome(last)
  if not outcome then return end
  local nth = job.earlier + last.attempt
  local row = table.concat({ text(nth), last.taken, last.at, outcome, "" }, ",") .. #last.worker + 1 + #failure .. ":"
    .. last.worker .. "," .. failure
  local rows = newest_rows(read("attempts", job.id) .. row, nth, tonumber(queue.root.attempt_cap))
  plan.add("HSET", queue.filled("attempts"), job.id, rows)
end

local function history_row(job, at, state, attempt, failure)
  job.folded = job.folded + 1
  return table.concat({ text(job.folded), at, state, text(attempt), #failure .. ":" .. failure }, ",")
end

-- The stored rows; before there are any, the one of the offer.
local function rows_so_far(job)
  if job.rows then return job.rows end
  if job.folded > 0 then return read("history", job.id) end
  local created, delayed = head.created(job)
  return history_row(job, created, delayed == "d" and "s" or "r", 0, "")
end

local function store_history(job, rows)
  rows = newest_rows(rows, job.folded, tonumber(queue.root.transition_cap))
  job.rows = rows
  plan.add("HSET", queue.filled("history"), job.id, rows)
end

-- Moves the last settlement's rows to the columns; the head keeps what answers a repeat of it.
function M.fold(job)
  local last = job.last
  if not last or job.mark == "!" then return end
  local failure = M.failed(last) and read("error", job.id) or ""
  fold_attempt(job, last, M.brief(failure))
  if queue.root.history ~= "off" then
    local rows = rows_so_far(job)
    if last.taken ~= "0" then rows = rows .. history_row(job, last.taken, "l", last.attempt, "") end
    store_history(job, rows .. history_row(job, last.at, last.state, last.attempt, failure))
  end
  job.mark = "!"
end

-- Records a step that no claim made: retry, promote, cancel of a waiting job.
function M.stepped(job, letter, attempt)
  M.fold(job)
  if queue.root.history == "off" then return end
  local rows = rows_so_far(job)
  store_history(job, rows .. history_row(job, queue.now, letter, attempt, ""))
end

return M
