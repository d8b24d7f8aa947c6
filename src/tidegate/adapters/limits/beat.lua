-- Takes a sign of life of one worker and says how the store is: `LeaseAnswer` without grants.
--
-- KEYS: when the store came up (its epoch), and the workers by when they were heard, both under one hash tag. ARGV: the worker, and the
-- seconds after which a silent one does not count. Gives epoch, age in seconds as text, and the workers alive.

local KEEP_S = 86400 -- without any worker for so long, nothing that matters is left

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1e6 + tonumber(time[2])
local written = string.format('%.0f', now_us)
local epoch = redis.call('GET', KEYS[1])
if not epoch then
  epoch = written
  redis.call('SET', KEYS[1], epoch)
end
redis.call('ZADD', KEYS[2], written, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now_us - tonumber(ARGV[2]) * 1e6))
redis.call('EXPIRE', KEYS[1], KEEP_S)
redis.call('EXPIRE', KEYS[2], KEEP_S)
return { epoch, string.format('%.6f', (now_us - tonumber(epoch)) / 1e6), redis.call('ZCARD', KEYS[2]) }
