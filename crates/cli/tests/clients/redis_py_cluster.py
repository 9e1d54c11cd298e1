"""redis-py's cluster client against a cluster of three nodes: it finds the slots by itself, keys of all nodes,
pipelines, transactions of one slot, scans, and keys that are moved while it writes."""

import sys

import redis
from redis.cluster import ClusterNode, RedisCluster

PORT = int(sys.argv[1])


def check(seen, expected):
    if seen != expected:
        raise AssertionError(f"{seen!r} is not {expected!r}")


def topology(rc):
    nodes = rc.get_primaries()
    check(len(nodes), 3)
    check(len({rc.get_node_from_key(f"key:{n}").name for n in range(100)}), 3)
    check(rc.cluster_info()["cluster_state"], "ok")
    check(sum(end - start + 1 for start, end in rc.cluster_slots()), 16384)
    known = rc.cluster_nodes()
    check({node["flags"].removeprefix("myself,") for node in known.values()}, {"master"})
    check({f"{node.host}:{node.port}" for node in nodes}, set(known))
    shards = rc.execute_command("CLUSTER SHARDS", target_nodes=RedisCluster.RANDOM)
    check(len(shards), 3)
    check(rc.cluster_keyslot("foo"), 12182)


def values(rc):
    rc.flushall(target_nodes=RedisCluster.PRIMARIES)
    for n in range(300):
        check(rc.set(f"key:{n}", n), True)
    for n in range(300):
        check(rc.get(f"key:{n}"), str(n))
    keys = [f"key:{n}" for n in range(300)]
    check(rc.mget_nonatomic(keys), [str(n) for n in range(300)])
    rc.mset_nonatomic({f"m:{n}": n for n in range(50)})
    check(rc.delete(*[f"m:{n}" for n in range(50)]), 50)
    # Any node scans all keys: a client that asks every node gets each of them from every node.
    one = sorted(rc.scan_iter(match="key:*", target_nodes=rc.get_random_node()))
    check(one, sorted(keys))
    check(set(rc.scan_iter(match="key:*")), set(keys))
    check(rc.dbsize(target_nodes=RedisCluster.RANDOM), 300)
    check(rc.rpush("list", "a", "b"), 2)
    check(rc.hset("hash", mapping={"x": 1}), 1)
    check(rc.zadd("zset", {"m": 1.5}), 1)
    check(rc.zscore("zset", "m"), 1.5)
    check(rc.sunion("{t}a", "{t}b"), set())


def pipelines(rc):
    with rc.pipeline() as pipe:
        for n in range(200):
            pipe.incr(f"key:{n}")
        check(pipe.execute(), list(range(1, 201)))
    with rc.pipeline(transaction=True) as pipe:
        pipe.set("{tag}a", 1)
        pipe.incr("{tag}a")
        pipe.lpush("{tag}b", "x")
        check(pipe.execute()[1:], [2, 1])


def moves(rc):
    """A key goes to every shard and home, and keeps counting."""
    rc.set("moved", 0)
    count = 0
    for to in ["1", "2", "3", "HOME"] * 5:
        count += 1
        check(rc.incr("moved"), count)
        node = rc.get_redis_connection(rc.get_random_node())
        moved = node.execute_command("CLUSTER MOVEKEY", "moved", to)
        check(moved in (True, "OK"), True)
        count += 1
        check(rc.incr("moved"), count)
    try:
        rc.lpush("moved", "x")
    except redis.ResponseError as error:
        check(str(error).startswith("WRONGTYPE"), True)
    else:
        raise AssertionError("a list in a string")


for protocol in (2, 3):
    nodes = [ClusterNode("127.0.0.1", PORT)]
    client = RedisCluster(startup_nodes=nodes, decode_responses=True, protocol=protocol)
    topology(client)
    values(client)
    pipelines(client)
    moves(client)
    client.close()
print("all checks passed")
