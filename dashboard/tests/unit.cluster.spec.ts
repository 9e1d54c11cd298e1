// Shares of work between two looks at a cluster.
import assert from "node:assert/strict";
import { test } from "node:test";
import { amplification, since, sum, type Work } from "../src/work.ts";

const work = (reads: number, writes: number) => ({ reads, writes, user_bytes: 10 * writes, device_bytes: 25 * writes });

test("work is what was done since the last look", () => {
  const before: Work = new Map([["a", work(100, 10)], ["b", work(50, 5)]]);
  const now: Work = new Map([["a", work(160, 10)], ["b", work(70, 25)], ["c", work(7, 7)]]);
  const done = since(before, now);
  assert.deepEqual(done.get("a"), work(60, 0));
  assert.deepEqual(done.get("b"), work(20, 20));
  assert.deepEqual(done.get("c"), work(7, 7), "a node that came counts from 0");
  assert.equal(sum(done, "reads"), 87);
  assert.deepEqual(since(null, now), now);
});

test("a node that was restarted counts from 0", () => {
  const before: Work = new Map([["a", work(100, 10)]]);
  assert.deepEqual(since(before, new Map([["a", work(3, 1)]])).get("a"), work(3, 1));
});

test("nothing written has no amplification", () => {
  assert.equal(amplification(0, 0), null);
  assert.equal(amplification(250, 100), 2.5);
});
