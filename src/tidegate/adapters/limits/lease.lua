-- Settles one worker's account of one counter and grants a lease: `policy/metering/leases/ledger.py` inside Redis.
--
-- KEYS: the counter and its leases, both under the counter's own hash tag. ARGV: the claim (msgpack, `domain.leases.LeaseClaim`), the
-- worker, the life of a lease and the time in which a claim may be repeated, both in seconds; a fifth argument, of tests only, is
-- the time instead of the server's. Gives a `LeaseGrant` in msgpack. All of it happens at one instant, and every key expires.

local SLOTS = 601 -- as in `sliding_window.py`: six hundred whole slots, and the one that is running
local ROUNDING = 1e-6
local PLACE_RETRY_S = 1

local claim = cmsgpack.unpack(ARGV[1])
local name, spec, sequence, life = claim[1], claim[2], claim[3], claim[4]
local spent, held, spare, want, returned, owed = claim[5], claim[6], claim[7], claim[8], claim[9], claim[10]
local meter, ceiling, span_s, burst, period_name = spec[1], spec[2], spec[3], math.max(1, spec[4]), spec[5]
local worker, lease_s, remembered_s = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local counter_key, leases_key = KEYS[1], KEYS[2]

local now, now_us
if ARGV[5] then
  now = tonumber(ARGV[5])
  now_us = math.floor(now * 1e6)
else
  local time = redis.call('TIME')
  now_us = tonumber(time[1]) * 1e6 + tonumber(time[2])
  now = now_us / 1e6
end

local function number(value) return tonumber(value or 0) or 0 end
local function whole(value) return string.format('%.0f', value) end

-- The meters. Each has: load, save, take(amount) -> slot (it fits), give_back(amount, slot), charge(amount, age_s), available(),
-- in_use() and leaves_s(amount): seconds until so much of that is gone.

local function sliding()
  local rate = 600 / span_s
  local head, total, debt
  local function slot_of(at) return math.floor(at * rate + ROUNDING) end
  local function get(slot) return number(redis.call('HGET', counter_key, 's' .. whole(slot))) end
  local function add(slot, amount)
    if amount > 0 then redis.call('HINCRBY', counter_key, 's' .. whole(slot), whole(amount)) end
  end
  local function pay(slot)
    local paid = math.min(debt, ceiling - total)
    if paid > 0 then
      debt, total = debt - paid, total + paid
      add(slot, paid)
    end
  end
  local self = { most = ceiling }
  function self.load()
    local kept = redis.call('HMGET', counter_key, 'head', 'total', 'debt')
    local to = slot_of(now)
    head, total, debt = tonumber(kept[1] or to), number(kept[2]), number(kept[3])
    while head < to do
      if total == 0 and debt == 0 then
        head = to
        break
      end
      head = head + 1
      local left = get(head - SLOTS)
      if left > 0 then
        total = total - left
        redis.call('HDEL', counter_key, 's' .. whole(head - SLOTS))
        pay(head)
      end
    end
  end
  function self.save() redis.call('HSET', counter_key, 'head', whole(head), 'total', whole(total), 'debt', whole(debt)) end
  function self.take(amount)
    add(head, amount)
    total = total + amount
    return total + debt > ceiling and 0 or head
  end
  function self.give_back(amount, slot)
    if slot > head - SLOTS and slot <= head then
      local kept = get(slot)
      local left = kept - math.min(amount, kept)
      if left > 0 then
        redis.call('HSET', counter_key, 's' .. whole(slot), whole(left))
      else
        redis.call('HDEL', counter_key, 's' .. whole(slot))
      end
      total = total - (kept - left)
      pay(head)
    end
  end
  function self.charge(amount, age_s)
    local slot = slot_of(now - age_s)
    if slot < head then
      if slot + SLOTS <= head then
        amount = 0
      else
        local fits = math.max(0, math.min(amount, ceiling - total - debt))
        add(slot, fits)
        total, amount = total + fits, amount - fits
      end
    end
    debt = debt + amount
    pay(head)
  end
  function self.available() return math.max(0, ceiling - total - debt) end
  function self.in_use() return total + debt end
  function self.leaves_s(amount)
    local turns = math.floor((amount - 1) / total)
    local rest = amount - 1 - turns * total
    local slot
    if rest == total - 1 then
      slot = head
      while get(slot) == 0 do slot = slot - 1 end
    else
      local left = 0
      slot = head - SLOTS
      while left <= rest do
        slot = slot + 1
        left = left + get(slot)
      end
    end
    return math.max(0, (slot + SLOTS * (turns + 1)) / rate - now)
  end
  return self
end

local function gcra()
  local unit = math.floor(span_s * 1e6 + 0.5)
  local line -- how far the line of use ends ahead of now, in ticks of a microsecond / ceiling
  local self = { most = burst }
  local function seconds(ticks) return ticks > 0 and (math.ceil(ticks / ceiling) + 1) / 1e6 or 0 end
  function self.load()
    local kept = redis.call('HMGET', counter_key, 'line', 'at', 'ceiling')
    line = number(kept[1]) - (now_us - tonumber(kept[2] or now_us)) * tonumber(kept[3] or ceiling)
  end
  function self.save() redis.call('HSET', counter_key, 'line', whole(line), 'at', whole(now_us), 'ceiling', whole(ceiling)) end
  function self.take(amount)
    local longer = math.max(0, line) + amount * unit
    if longer > burst * unit then return 0 end
    line = longer
    return now_us + math.ceil(line / ceiling)
  end
  function self.give_back(amount, slot)
    local lies_ahead = math.min((slot - now_us) * ceiling, line)
    if lies_ahead > 0 then line = line - math.min(amount * unit, lies_ahead) end
  end
  function self.charge(amount, age_s) line = math.max(line, (math.floor((now - age_s) * 1e6) - now_us) * ceiling) + amount * unit end
  function self.available() return math.floor(math.max(0, burst * unit - math.max(0, line)) / unit) end
  function self.in_use() return math.max(0, line) end
  function self.leaves_s(ticks) return seconds(ticks) end
  function self.excess(lacking) return math.max(0, line) + (lacking - burst) * unit end
  return self
end

local function first_day_of(month)
  local year, index = math.floor(month / 12) + 1970, month % 12
  if index < 2 then year = year - 1 end
  local era = math.floor(year / 400)
  local year_of_era = year - era * 400
  local day_of_year = math.floor((153 * ((index + 10) % 12) + 2) / 5)
  return era * 146097 + year_of_era * 365 + math.floor(year_of_era / 4) - math.floor(year_of_era / 100) + day_of_year - 719468
end

local function period_at(at)
  if period_name == 'hour' then return math.floor(at / 3600) end
  local days = math.floor(at / 86400)
  if period_name == 'day' then return days end
  local month = math.floor(days / 30.436875) + 1
  while first_day_of(month) > days do month = month - 1 end
  return month
end

local function starts_at(number_of_period)
  if period_name == 'hour' then return number_of_period * 3600 end
  return (period_name == 'day' and number_of_period or first_day_of(number_of_period)) * 86400
end

local function calendar()
  local period, used
  local self = { most = ceiling }
  function self.load()
    local kept = redis.call('HMGET', counter_key, 'period', 'used')
    period = period_at(now + ROUNDING)
    used = math.max(0, number(kept[2]) - ceiling * (period - tonumber(kept[1] or period)))
  end
  function self.save() redis.call('HSET', counter_key, 'period', whole(period), 'used', whole(used)) end
  function self.take(amount)
    if used + amount > ceiling then return 0 end
    used = used + amount
    return period
  end
  function self.give_back(amount, slot)
    if slot == period then used = used - math.min(amount, used) end
  end
  function self.charge(amount) used = used + amount end
  function self.available() return math.max(0, ceiling - used) end
  function self.in_use() return used end
  function self.leaves_s(amount) return starts_at(period + math.ceil(amount / ceiling)) - now end
  return self
end

local function places()
  local used
  local self = { most = ceiling }
  function self.load() used = number(redis.call('HGET', counter_key, 'used')) end
  function self.save() redis.call('HSET', counter_key, 'used', whole(used)) end
  function self.take(amount)
    used = used + amount
    return 0
  end
  function self.give_back(amount) used = used - amount end
  function self.charge(amount) used = used + amount end
  function self.available() return math.max(0, ceiling - used) end
  function self.in_use() return used end
  function self.leaves_s() return PLACE_RETRY_S end
  return self
end

local function open_s()
  if meter == 'sliding' then return span_s * (1 + 1 / 300) end
  if meter == 'gcra' then return span_s * burst / ceiling end
  if meter == 'places' then return lease_s end
  return ({ hour = 3600, day = 86400, month = 31 * 86400 })[period_name]
end

-- The account.

local known_life = redis.call('HGET', counter_key, 'life')
if life ~= 0 and tonumber(known_life or 0) ~= life then return cmsgpack.pack({ name, sequence, 0 }) end
if not known_life then
  known_life = whole(now_us)
  redis.call('DEL', leases_key)
  redis.call('HSET', counter_key, 'life', known_life)
end

local counter = ({ sliding = sliding, gcra = gcra, calendar = calendar, places = places })[meter]()
counter.load()

local mine = { 0, 0, 0, 0, '' } -- sequence, amount, slot, heard at, grant
local leases = redis.call('HGETALL', leases_key)
for index = 1, #leases, 2 do
  local whose, lease = leases[index], cmsgpack.unpack(leases[index + 1])
  local silent_s = now - lease[4]
  local is_changed = false
  if lease[2] > 0 and silent_s >= lease_s then
    counter.give_back(lease[2], lease[3])
    lease[2] = 0
    is_changed = true
  end
  if whose == worker then
    mine = lease
  elseif silent_s >= open_s() + remembered_s then
    redis.call('HDEL', leases_key, whose)
  elseif is_changed then
    redis.call('HSET', leases_key, whose, cmsgpack.pack(lease))
  end
end

if sequence <= mine[1] then
  counter.save()
  redis.call('HSET', leases_key, worker, cmsgpack.pack(mine))
  return mine[5]
end

local covered = math.min(spent, mine[2])
if mine[2] > covered then counter.give_back(mine[2] - covered, mine[3]) end
for _, back in ipairs(returned) do counter.give_back(back[2], back[1]) end
counter.charge(spent - covered + held, 0)
for _, late in ipairs(owed) do counter.charge(late[2], late[1]) end

local asked = spare + want
local granted = math.min(asked, counter.available())
local slot = counter.take(granted)
local in_use = counter.in_use()
local reset_s = in_use > 0 and counter.leaves_s(in_use) or 0
local wait_s = 0
if granted < asked then
  local lacking = math.min(asked - granted, counter.most)
  local excess = counter.excess and counter.excess(lacking) or in_use + lacking - ceiling
  wait_s = excess > 0 and counter.leaves_s(excess) or 0
end
local grant = cmsgpack.pack({ name, sequence, tonumber(known_life), granted, slot, counter.available(), reset_s, wait_s })

counter.save()
redis.call('HSET', leases_key, worker, cmsgpack.pack({ sequence, held + granted, slot, now, grant }))
local keep_ms = whole(math.ceil((math.max(reset_s, open_s()) + remembered_s) * 1000))
redis.call('PEXPIRE', counter_key, keep_ms)
redis.call('PEXPIRE', leases_key, keep_ms)
return grant
