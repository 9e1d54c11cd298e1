// JedisCluster against a cluster of three nodes: it finds the slots by itself, keys of all nodes,
// pipelines, several keys of one slot, scans, and a key that is moved while it counts.
//
// Usage: java -cp 'FOLDER/*' Cluster.java PORT

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisClusterOperationException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.resps.ScanResult;

class Cluster {
    static void check(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new IllegalStateException(found + ", not " + wanted);
        }
    }

    /** Every node, by a connection of its own. */
    static List<Jedis> nodes(JedisCluster cluster) {
        var nodes = new ArrayList<Jedis>();
        for (String address : cluster.getClusterNodes().keySet()) {
            nodes.add(new Jedis(HostAndPort.from(address)));
        }
        return nodes;
    }

    static void values(JedisCluster cluster) {
        check(cluster.getClusterNodes().size(), 3);
        check(cluster.flushAll(), "OK");
        for (int n = 0; n < 300; n++) {
            check(cluster.set("key:" + n, "" + n), "OK");
        }
        for (int n = 0; n < 300; n++) {
            check(cluster.get("key:" + n), "" + n);
        }
        // Any node scans all of them.
        for (Jedis node : nodes(cluster)) {
            Set<String> found = new HashSet<>();
            ScanParams some = new ScanParams().match("key:*").count(50);
            String cursor = "0";
            do {
                ScanResult<String> page = node.scan(cursor, some);
                found.addAll(page.getResult());
                cursor = page.getCursor();
            } while (!cursor.equals("0"));
            check(found.size(), 300);
            check(node.clusterInfo().contains("cluster_state:ok"), true);
            node.close();
        }
        check(cluster.mset("{t}a", "1", "{t}b", "2"), "OK");
        check(cluster.mget("{t}a", "{t}b", "{t}c"), java.util.Arrays.asList("1", "2", null));
        check(cluster.hset("hash", Map.of("a", "1")), 1L);
        check(cluster.zadd("zset", 1.5, "x"), 1L);
        check(cluster.rename("{t}a", "{t}d"), "OK");
        try {
            cluster.rename("a", "b");
            throw new IllegalStateException("keys of two slots");
        } catch (JedisClusterOperationException error) {
            check(error.getMessage().contains("slot"), true);
        }
    }

    static void pipelines(JedisCluster cluster) {
        List<Response<Long>> counts = new ArrayList<>();
        try (ClusterPipeline pipeline = cluster.pipelined()) {
            for (int n = 0; n < 200; n++) {
                counts.add(pipeline.incr("key:" + n));
            }
            pipeline.sync();
        }
        for (int n = 0; n < 200; n++) {
            check(counts.get(n).get(), n + 1L);
        }
    }

    static void moves(JedisCluster cluster) {
        cluster.set("moved", "0");
        long count = 0;
        for (int turn = 0; turn < 5; turn++) {
            for (String to : List.of("1", "2", "3", "HOME")) {
                check(cluster.incr("moved"), ++count);
                for (Jedis node : nodes(cluster).subList(0, 1)) {
                    node.sendCommand(Protocol.Command.CLUSTER, "MOVEKEY", "moved", to);
                    node.close();
                }
                check(cluster.incr("moved"), ++count);
            }
        }
    }

    public static void main(String[] arguments) {
        var seed = Set.of(new HostAndPort("127.0.0.1", Integer.parseInt(arguments[0])));
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            var config = DefaultJedisClientConfig.builder().protocol(protocol).build();
            try (JedisCluster cluster = new JedisCluster(seed, config)) {
                values(cluster);
                pipelines(cluster);
                moves(cluster);
            }
        }
        System.out.println("all checks passed");
    }
}
