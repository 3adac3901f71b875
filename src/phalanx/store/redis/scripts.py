"""The operations of the store as Lua scripts: each runs alone, whole, and compares before it writes.

A script without the flag `no-writes` is refused by a replica, so a server that was demoted answers none of them. Redis
keeps what a script wrote before it failed; so all comparisons come first, and what may fail (memory, the disk) Redis
checks before the first line. Every answer starts with a word, the epoch and where the log ends.
"""

from __future__ import annotations

from phalanx.store.protocol import LEFT_BEHIND

# 2: kinds of events that version 0.2 cannot read, and another key for the leader, so that its standbys do not lead.
SCHEMA = 2
# KEYS are the same for all scripts, in this order; ARGV begins with the epoch and the revision this process has seen.
NAMES = (
    "meta",
    "office",
    "order",
    "log",
    "images",
    "jobs",
    "history",
    "quarantine",
    "about:",
    "leader",
    "numbers",
)

_BEGIN = f"""
local meta, former, order, log, images, jobs, history, quarantine, about, leader, numbers = unpack(KEYS)
local epoch = tonumber(redis.call('HGET', meta, 'epoch') or '0')
local schema = tonumber(redis.call('HGET', meta, 'schema') or '{SCHEMA}')
if schema > {SCHEMA} then return {{'newer', epoch, schema}} end
local office = leader
if schema < {SCHEMA} then office = former end
local pruned = redis.call('HGET', meta, 'pruned') or '0'
local last = redis.call('ZREVRANGE', order, 0, 0)[1]
local head = last or pruned
local aside = tonumber(redis.call('HGET', meta, 'aside') or '0')
if epoch < tonumber(ARGV[1]) or math.max(tonumber(head), aside) < tonumber(ARGV[2]) then
    return {{'back', epoch, head}}
end
"""
# From now on only versions that read all we write may use the store.
_RAISE = f"""
redis.call('DEL', former)
redis.call('HSET', former, 'name', '{LEFT_BEHIND.name}', 'address', '', 'link', '')
redis.call('HSET', meta, 'schema', '{SCHEMA}')
office = leader
"""
_OURS = """
if epoch ~= tonumber(ARGV[3]) then return {'fenced', epoch, head} end
"""

_HELD_BY = """
local held = redis.call('HMGET', office, 'name', 'address', 'link')
"""


def _script(body: str, flags: str = "") -> str:
    return f"#!lua{flags}\n{_BEGIN}{body}"


# What frees memory, or only reads, must work when memory is short.
_LEAN = " flags=allow-oom"

# 3 name, 4 address, 5 link, 6 lease in ms
ELECT = _script(
    _HELD_BY
    + """
if held[1] and held[1] ~= ARGV[3] then return {'ok', epoch, head, held[1], held[2], held[3]} end
"""
    + _RAISE
    + """
epoch = redis.call('HINCRBY', meta, 'epoch', 1)
redis.call('DEL', office)
redis.call('HSET', office, 'name', ARGV[3], 'address', ARGV[4], 'link', ARGV[5], 'epoch', epoch)
redis.call('PEXPIRE', office, ARGV[6])
return {'ok', epoch, head, ARGV[3], ARGV[4], ARGV[5]}
"""
)
# 3 epoch, 4 lease in ms
RENEW = _script(
    _OURS
    + """
if redis.call('PEXPIRE', office, ARGV[4]) == 0 then return {'fenced', epoch, head} end
return {'ok', epoch, head}
""",
    _LEAN,
)
# 3 epoch
RESIGN = _script(
    """
if epoch == tonumber(ARGV[3]) then redis.call('DEL', office) end
return {'ok', epoch, head}
""",
    _LEAN,
)
LEADER = _script(_HELD_BY + "return {'ok', epoch, head, held[1], held[2], held[3]}", _LEAN)
# 3 the least epoch wanted
OPEN_TERM = _script(
    _RAISE
    + """
epoch = math.max(epoch + 1, tonumber(ARGV[3]))
redis.call('HSET', meta, 'epoch', string.format('%.0f', epoch))
redis.call('DEL', office)
return {'ok', epoch, head}
"""
)
# 3 epoch
CONFIRM = _script(_OURS + "return {'ok', epoch, head}", _LEAN)
# 3 epoch, 4 where the log ended or '', 5 revision, 6 record, 7 how many subjects, these, then for each job: its id,
# record and number
APPEND = _script(
    _OURS
    + """
if ARGV[4] ~= '' and ARGV[4] ~= head then return {'moved', epoch, head} end
if tonumber(ARGV[5]) <= tonumber(head) then return {'late', epoch, head} end
redis.call('ZADD', order, ARGV[5], ARGV[5])
redis.call('HSET', log, ARGV[5], ARGV[6])
local subjects = tonumber(ARGV[7])
for at = 8, 7 + subjects do redis.call('ZADD', about .. ARGV[at], ARGV[5], ARGV[5]) end
for at = 8 + subjects, #ARGV, 3 do
    redis.call('ZADD', jobs, 0, ARGV[at])
    redis.call('HSET', history, ARGV[at], ARGV[at + 1])
    if ARGV[at + 2] ~= '0' then redis.call('ZADD', numbers, ARGV[at + 2], ARGV[at]) end
end
return {'ok', epoch, head}
"""
)
# 3 epoch, 4 revision, 5 record, 6 how many images are kept
SAVE_IMAGE = _script(
    _OURS
    + """
redis.call('HSET', images, ARGV[4], ARGV[5])
local kept = redis.call('HKEYS', images)
table.sort(kept, function(a, b) return tonumber(a) > tonumber(b) end)
for at = tonumber(ARGV[6]) + 1, #kept do redis.call('HDEL', images, kept[at]) end
return {'ok', epoch, head}
"""
)
# 3 epoch, 4 up to where the log is dropped, 5 how many revisions, the revisions, then subject and revision pairs
PRUNE_LOG = _script(
    _OURS
    + """
local count = tonumber(ARGV[5])
for at = 6, 5 + count do
    redis.call('ZREM', order, ARGV[at])
    redis.call('HDEL', log, ARGV[at])
end
for at = 6 + count, #ARGV, 2 do redis.call('ZREM', about .. ARGV[at], ARGV[at + 1]) end
redis.call('HSET', meta, 'pruned', ARGV[4])
return {'ok', epoch, head}
""",
    _LEAN,
)
# 3 epoch, 4 how many jobs are kept, 5 how many may be dropped at once; the last of the answer is how many are left over
PRUNE_JOBS = _script(
    _OURS
    + """
local over = redis.call('ZCARD', jobs) - tonumber(ARGV[4])
local dropped = {}
if over > 0 then dropped = redis.call('ZRANGE', jobs, 0, math.min(over, tonumber(ARGV[5])) - 1) end
for _, job in ipairs(dropped) do
    redis.call('ZREM', jobs, job)
    redis.call('HDEL', history, job)
    redis.call('ZREM', numbers, job)
end
return {'ok', epoch, head, over - #dropped}
""",
    _LEAN,
)
# Where things are: the beginning of the log, and which images there are.
LAYOUT = _script(
    "return {'ok', epoch, head, pruned, redis.call('HKEYS', images), redis.call('HGET', meta, 'schema')}",
    _LEAN,
)
# 3 after, 4 limit, 5 subject or '' for all
PAGE = _script(
    """
local index = order
if ARGV[5] ~= '' then index = about .. ARGV[5] end
local found = redis.call('ZRANGEBYSCORE', index, '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[4])
local records = {}
if #found > 0 then records = redis.call('HMGET', log, unpack(found)) end
return {'ok', epoch, head, pruned, found, records}
""",
    _LEAN,
)
# 3 before or '', 4 limit, 5 prefix
PAST = _script(
    """
local high = '+'
if ARGV[5] ~= '' then high = '(' .. ARGV[5] .. '~' end
if ARGV[3] ~= '' and (high == '+' or ARGV[3] < ARGV[5] .. '~') then high = '(' .. ARGV[3] end
local found = redis.call('ZREVRANGEBYLEX', jobs, high, '[' .. ARGV[5], 'LIMIT', 0, ARGV[4])
local records = {}
if #found > 0 then records = redis.call('HMGET', history, unpack(found)) end
return {'ok', epoch, head, found, records}
""",
    _LEAN,
)
# 3 number
NUMBERED = _script(
    "return {'ok', epoch, head, redis.call('ZRANGEBYSCORE', numbers, ARGV[3], ARGV[3])[1]}", _LEAN
)
# 3 epoch, then pairs of number and job
KEEP_NUMBERS = _script(
    _OURS
    + """
for at = 4, #ARGV, 2 do redis.call('ZADD', numbers, ARGV[at], ARGV[at + 1]) end
return {'ok', epoch, head}
"""
)
# 3 log or image, 4 key, 5 the damaged record, so that a good one written meanwhile stays
SET_ASIDE = _script(
    """
local source = log
if ARGV[3] == 'image' then source = images end
if redis.call('HGET', source, ARGV[4]) ~= ARGV[5] then return {'ok', epoch, head} end
redis.call('HSET', quarantine, ARGV[3] .. ':' .. ARGV[4], ARGV[5])
redis.call('HDEL', source, ARGV[4])
if ARGV[3] == 'log' then
    redis.call('ZREM', order, ARGV[4])
    if tonumber(ARGV[4]) > aside then redis.call('HSET', meta, 'aside', ARGV[4]) end
end
return {'ok', epoch, head}
"""
)
# 3 schema: written once, by the first coordinator
BEGIN = _script("redis.call('HSETNX', meta, 'schema', ARGV[3])\nreturn {'ok', epoch, head}")
READS = {LEADER, CONFIRM, LAYOUT, PAGE, PAST, NUMBERED}
