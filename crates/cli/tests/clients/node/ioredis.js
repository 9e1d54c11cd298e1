// ioredis against a server: its ready check reads INFO, its pipelines and transactions their replies,
// its scan streams the cursors.
//
// Usage: node ioredis.js PORT

import assert from "node:assert/strict";
import Redis from "ioredis";

async function main(port) {
  const redis = new Redis({ port, connectionName: "ioredis", maxRetriesPerRequest: 1 });
  assert.equal(await redis.ping(), "PONG");
  assert.equal(await redis.set("text", "value", "EX", 1000), "OK");
  assert.equal(await redis.get("text"), "value");
  assert.deepEqual(await redis.getBuffer("text"), Buffer.from("value"));
  assert.equal(await redis.hset("hash", { a: "1", b: "2" }), 2);
  assert.deepEqual(await redis.hgetall("hash"), { a: "1", b: "2" });
  assert.equal(await redis.sadd("set", "x", "y"), 2);
  assert.equal(await redis.zadd("zset", 1.5, "x", 0.5, "y"), 2);
  assert.deepEqual(await redis.zrange("zset", 0, -1, "WITHSCORES"), ["y", "0.5", "x", "1.5"]);
  assert.equal(await redis.zunionstore("union", 2, "zset", "set", "WEIGHTS", 2, 1), 2);
  assert.equal(await redis.rpush("list", "a", "b", "c"), 3);
  assert.equal(await redis.lmove("list", "list", "LEFT", "RIGHT"), "a");
  assert.equal(await redis.rename("list", "renamed"), "OK");
  assert.equal(await redis.setbit("bits", 7, 1), 0);

  const replies = await redis.pipeline().incr("n").lpush("text", "x").incr("n").exec();
  assert.deepEqual([replies[0], replies[2]], [[null, 1], [null, 2]]);
  assert.match(replies[1][0].message, /^WRONGTYPE /);
  assert.deepEqual(await redis.multi().incr("n").get("n").exec(), [[null, 3], [null, "3"]]);

  const other = redis.duplicate();
  await redis.watch("n");
  await other.incr("n");
  assert.equal(await redis.multi().incr("n").exec(), null);
  await assert.rejects(redis.call("NOSUCH"), /unknown command 'NOSUCH'/);

  for (let start = 0; start < 2000; start += 100) {
    await redis.mset(Array.from({ length: 100 }, (_, at) => [`many:${start + at}`, "v"]).flat());
  }
  const seen = new Set();
  for await (const keys of redis.scanStream({ match: "many:*", count: 100 })) {
    keys.forEach((key) => seen.add(key));
  }
  assert.equal(seen.size, 2000);

  const clients = await redis.client("LIST");
  assert.match(clients, / name=ioredis .* cmd=client\|list /);
  await Promise.all([redis.quit(), other.quit()]);
  console.log("all checks passed");
}

await main(Number(process.argv[2]));
