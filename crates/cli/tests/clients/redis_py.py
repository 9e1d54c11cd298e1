"""redis-py against a server: strings, hashes, sets, sorted sets, lists, expiry, scans, pipelines,
transactions, both protocols, connection pools."""

import sys
import threading
import time

import redis

PORT = int(sys.argv[1])


def check(seen, expected):
    if seen != expected:
        raise AssertionError(f"{seen!r} is not {expected!r}")


def types(r):
    r.flushall()
    check(r.set("k", "v", ex=100), True)
    check(r.get("k"), "v")
    if not 0 < r.ttl("k") <= 100:
        raise AssertionError(r.ttl("k"))
    check(r.set("k", "w", nx=True), None)
    check(r.set("k", "w", get=True), "v")
    check(r.mset({"a": "1", "b": "2"}), True)
    check(r.mget("a", "b", "absent"), ["1", "2", None])
    check(r.incrby("a", 41), 42)
    check(r.incrbyfloat("f", 0.5), 0.5)
    check(r.append("b", "xyz"), 4)
    check(r.getrange("b", 1, -1), "xyz")
    check(r.hset("h", mapping={"x": 1, "y": 2}), 2)
    check(r.hgetall("h"), {"x": "1", "y": "2"})
    check(r.hincrby("h", "x", 5), 6)
    check(r.hdel("h", "y"), 1)
    check(r.sadd("s", "a", "b", "c"), 3)
    check(r.smembers("s"), {"a", "b", "c"})
    check(r.sismember("s", "z"), 0)
    check(r.srem("s", "a"), 1)
    check(r.zadd("z", {"one": 1, "two": 2, "three": 3}), 3)
    check(r.zrange("z", 0, -1), ["one", "two", "three"])
    check(r.zrangebyscore("z", 2, "+inf"), ["two", "three"])
    check(r.zscore("z", "two"), 2.0)
    check(r.zrank("z", "three"), 2)
    check(r.zincrby("z", 10, "one"), 11.0)
    check(r.rpush("l", "1", "2", "3"), 3)
    check(r.lpush("l", "0"), 4)
    check(r.lrange("l", 0, -1), ["0", "1", "2", "3"])
    check(r.lpop("l"), "0")
    check(r.rpop("l", 2), ["3", "2"])
    check(r.type("h"), "hash")
    check(r.exists("h", "z", "absent"), 2)
    check(r.expire("h", 1000), True)
    check(r.persist("h"), True)
    check(r.ttl("h"), -1)
    check(sorted(r.keys("[hsz]")), ["h", "s", "z"])
    check(r.delete("h", "s", "z", "l"), 4)
    try:
        r.lpush("a", "x")
    except redis.exceptions.ResponseError as error:
        check(str(error).startswith("WRONGTYPE"), True)
    else:
        raise AssertionError("a string took an element")


def expiry(r):
    r.set("soon", "v", px=50)
    r.hset("soon:h", "f", "v")
    r.pexpire("soon:h", 50)
    time.sleep(0.1)
    check(r.get("soon"), None)
    check(r.hgetall("soon:h"), {})
    check(r.hset("soon:h", "g", "w"), 1)
    check(r.hgetall("soon:h"), {"g": "w"})


def scans(r, protocol):
    r.flushall()
    with r.pipeline(transaction=False) as pipe:
        for n in range(3000):
            pipe.set(f"key:{n:05}", n)
            pipe.hset("big", f"field{n}", n)
            pipe.sadd("members", n)
        pipe.execute()
    check(len(set(r.scan_iter("key:*", count=100))), 3000)
    check(len(dict(r.hscan_iter("big", count=100))), 3000)
    check(len(set(r.sscan_iter("members"))), 3000)
    check(r.hlen("big"), 3000)
    pairs = r.execute_command("TSCAN", "key:00010", "key:00012")
    if protocol == 2:
        pairs = list(map(list, zip(pairs[::2], pairs[1::2])))
    check(pairs, [["key:00010", "10"], ["key:00011", "11"]])
    if not 2000 <= r.dbsize() <= 4000:
        raise AssertionError(f"{r.dbsize()} is no estimate of 3002")


def transactions(r):
    r.set("n", 0)

    def add():
        own = redis.Redis(port=PORT, decode_responses=True)
        for _ in range(30):
            own.transaction(lambda pipe: (lambda n: (pipe.multi(), pipe.set("n", n + 1)))(int(pipe.get("n"))), "n")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(r.get("n"), "120")


for protocol in (2, 3):
    r = redis.Redis(port=PORT, decode_responses=True, protocol=protocol)
    types(r)
    expiry(r)
    scans(r, protocol)
    transactions(r)
    check(r.info()["redis_mode"], "standalone")
    check(r.config_get("maxclients")["maxclients"].isdigit(), True)
    check(isinstance(r.command_count(), int), True)
    check(r.client_setname("checker"), True)
    check(r.client_getname(), "checker")
print("all checks passed")
