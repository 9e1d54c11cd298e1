// Jedis against a server: values, pipelines, transactions and scans, in both protocols.
//
// Usage: java -cp 'FOLDER/*' Jedis.java PORT

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

class Jedis {
    static void check(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new IllegalStateException(found + ", not " + wanted);
        }
    }

    static redis.clients.jedis.Jedis connect(int port, RedisProtocol protocol) {
        var config = DefaultJedisClientConfig.builder().protocol(protocol).clientName("jedis").build();
        return new redis.clients.jedis.Jedis(new HostAndPort("127.0.0.1", port), config);
    }

    static void all(redis.clients.jedis.Jedis jedis, redis.clients.jedis.Jedis other) {
        jedis.flushAll();
        check(jedis.ping(), "PONG");
        check(jedis.set("text", "value", SetParams.setParams().ex(1000)), "OK");
        check(jedis.get("text"), "value");
        check(jedis.get("absent"), null);
        check(jedis.hset("hash", Map.of("a", "1", "b", "2")), 2L);
        check(jedis.hgetAll("hash"), Map.of("a", "1", "b", "2"));
        check(jedis.zadd("zset", Map.of("x", 1.5, "y", 0.1)), 2L);
        check(jedis.zscore("zset", "y"), 0.1);
        check(jedis.zrange("zset", 0, -1), List.of("y", "x"));
        check(jedis.sadd("set", "x", "y"), 2L);
        check(jedis.smembers("set"), Set.of("x", "y"));
        check(jedis.sinterstore("to", "set", "set"), 2L);
        check(jedis.rpush("list", "a", "b"), 2L);
        check(jedis.lmove("list", "list", ListDirection.LEFT, ListDirection.RIGHT), "a");
        check(jedis.rename("list", "other"), "OK");
        check(jedis.clientList().contains(" name=jedis "), true);

        Pipeline pipeline = jedis.pipelined();
        Response<Long> first = pipeline.incr("n");
        Response<Long> wrong = pipeline.lpush("text", "x");
        Response<Long> second = pipeline.incr("n");
        pipeline.sync();
        check(List.of(first.get(), second.get()), List.of(1L, 2L));
        try {
            wrong.get();
            throw new IllegalStateException("no error");
        } catch (JedisDataException error) {
            check(error.getMessage().startsWith("WRONGTYPE "), true);
        }

        Transaction transaction = jedis.multi();
        transaction.incr("n");
        transaction.get("n");
        check(transaction.exec(), List.of(3L, "3"));
        jedis.watch("n");
        other.incr("n");
        transaction = jedis.multi();
        transaction.incr("n");
        check(transaction.exec(), null);

        for (int n = 0; n < 1000; n++) {
            jedis.set("many:" + n, "v");
        }
        var seen = new HashSet<String>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = jedis.scan(cursor, new ScanParams().match("many:*").count(100));
            seen.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        check(seen.size(), 1000);
    }

    public static void main(String[] arguments) {
        int port = Integer.parseInt(arguments[0]);
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            try (var jedis = connect(port, protocol); var other = connect(port, protocol)) {
                all(jedis, other);
            }
        }
        System.out.println("all checks passed");
    }
}
