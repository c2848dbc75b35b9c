-- step: an operator's step on one job, answered 1, or 0 when the job is not there or in another state
local queue = require("lib.queue")
local find = require("lib.find")
local move = require("lib.move")
local touched = require("lib.touched")

local M = {}

-- Runs a script whose argument is an id: `act` on its job, if `applies`.
function M.run(applies, act)
  local refusal = queue.open(touched.columns, touched.fields)
  if refusal then return refusal end
  if queue.answer then return queue.answer end
  local damage, job = find.job(ARGV[queue.first])
  if damage then return damage end
  local answer = job and applies(job) and "1" or "0"
  if answer == "1" then act(job) end
  queue.remember(answer)
  move.done()
  return answer
end

return M
