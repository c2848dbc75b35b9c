-- lease: who holds a job; its end stands in the leased index alone
--
--   lease = token "," attempt "," mark "," taken "," worker
--   token = stamp "-" nonce: the stamp grows with every claim of the queue, the nonce is the client's
--   mark  = s started, u unstarted; in upper case once a cancel is asked for
local M = {}

local match, find, sub = string.match, string.find, string.sub

function M.text(token, attempt, mark, taken, worker)
  return token .. "," .. attempt .. "," .. M.tail(mark, taken, worker)
end

-- What all leases of one take have in common.
function M.tail(mark, taken, worker)
  return mark .. "," .. taken .. "," .. worker
end

function M.parse(lease)
  local token, attempt, mark, taken, worker = match(lease, "^([^,]*),(%d+),([suSU]),(%d+),([^,]*)$")
  if not token or #attempt > 16 or #taken > 16 then return nil end
  return { text = lease, token = token, attempt = tonumber(attempt), started = mark == "s" or mark == "S",
    cancel = mark == "S" or mark == "U", taken = taken, worker = worker }
end

-- Whether `lease` carries `token`, without parsing the rest.
function M.has(lease, token)
  return token ~= "" and find(lease, token, 1, true) == 1 and sub(lease, #token + 1, #token + 1) == ","
end

-- The attempt of a whole lease that carries `token`, as text, or nil.
function M.attempt(lease, token)
  if token == "" or find(lease, token, 1, true) ~= 1 then return nil end
  local attempt = match(lease, "^,(%d+),[suSU],%d+,[^,]*$", #token + 1)
  return attempt and #attempt <= 16 and attempt or nil
end

return M
