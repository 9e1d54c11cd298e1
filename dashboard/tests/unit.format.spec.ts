// Numbers for people, names of keys, and names of places.
import assert from "node:assert/strict";
import { test } from "node:test";
import { shape } from "../mock/answers.ts";
import { Engine } from "../mock/engine.ts";
import { keyOf } from "../mock/keys.ts";
import { evenly } from "../src/evenly.ts";
import { ago, bytes, clock, count, digits, duration, engineKey, isWhole, micros, middle, moment, nanos, neighbours, percent, ratio, UNKNOWN } from "../src/format.ts";
import { placeOf } from "../src/hill/places.ts";

test("three digits that matter, never a false round number", () => {
  assert.deepEqual([0, 0.0001, 0.0012, 0.5, 1, 9.999, 12.34, 123.4, 1234].map(digits), ["0", "0", "0.001", "0.5", "1", "10", "12.3", "123", "1234"]);
  assert.deepEqual([0, 7, 999, 999.6, 1000, 999_999, 1_250_000, 3e12].map(count), ["0", "7", "999", "1k", "1k", "1M", "1.25M", "3T"]);
  assert.deepEqual([0, 1023, 1024, 1536, 128 << 20, 5 * 2 ** 40].map(bytes), ["0 B", "1023 B", "1 KiB", "1.5 KiB", "128 MiB", "5 TiB"]);
});

test("what is not known is a dash", () => {
  assert.deepEqual([bytes(null), count(null), ratio(null), percent(null), micros(null)], Array(5).fill(UNKNOWN));
});

test("a share near one is not called one, and shares over one stay what they are", () => {
  assert.deepEqual([0, 0.5, 0.9662, 0.9995, 1, 1.46].map(percent), ["0 %", "50 %", "96.6 %", "99.9+ %", "100 %", "146 %"]);
});

test("a file that stands for its neighbours says for how many", () => {
  const file = shape(new Engine("live"), true).families[0]!.levels.at(-1)!.files![0]!;
  assert.deepEqual(neighbours(file), []);
  assert.deepEqual(neighbours({ ...file, file_count: 12 }), [["stands for", "12 files side by side, this the first"]]);
});

test("times", () => {
  assert.deepEqual([6.4, 999.9, 1200, 2_500_000].map(micros), ["6.4 µs", "1 ms", "1.2 ms", "2.5 s"]);
  assert.deepEqual([95, 1500].map(nanos), ["95 ns", "1.5 µs"]);
  assert.deepEqual([9.6, 60, 61, 3600, 90_000].map(duration), ["9.6 s", "1 min", "1 min 1 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([ago(1000, 1500), ago(0, 61_000)], ["now", "1 min ago"]);
});

test("a time of another day has its date", () => {
  const at = new Date(2026, 2, 7, 23, 5, 9).getTime();
  const day = 24 * 3600 * 1000;
  assert.equal(clock(at), "23:05:09");
  for (const now of [at, at + day - 1, at - 2000]) assert.equal(moment(at, now), "23:05:09");
  for (const now of [at + day, at + 300 * day, at - day]) assert.equal(moment(at, now), "2026-03-07 23:05:09");
});

test("what is left out of a text leaves no half characters", () => {
  assert.equal(middle("😀".repeat(30), 11), `${"😀".repeat(6)}…${"😀".repeat(4)}`);
  assert.equal(middle("😀".repeat(20), 20), "😀".repeat(20));
});

test("keys of the keyspace are shown without the number of database 0", () => {
  assert.equal(engineKey(keyOf("user:1", [0]), "default", 0), "user:1");
  assert.equal(engineKey(keyOf("user:1", [3]), "default", 0), "3│user:1");
  assert.equal(engineKey(keyOf("\\\\x", [0x5c]), "default", 0), "92│\\\\x", "a backslash is doubled");
  assert.equal(engineKey(keyOf("user:1"), "other", 0), "user:1");
  const cut = middle("a".repeat(50) + "z", 20);
  assert.equal(cut.length, 20);
  assert.ok(cut.startsWith("aaa") && cut.includes("…") && cut.endsWith("z"));
});

test("keys of a store with slots are shown without them", () => {
  assert.equal(engineKey(keyOf("user:1", [0x12, 0xc3, 0]), "default", 2), "user:1");
  assert.equal(engineKey(keyOf("user:1", [0x3f, 0x5c, 7]), "collections", 2), "7│user:1");
  assert.equal(engineKey(keyOf("abcdefgh", [0x20, 0x42, 0]), "elements", 2), "abcdefgh");
  assert.equal(engineKey(keyOf("k", [0, 9, 1, 0]), "cluster", 2), "\\x01\\x00k", "the kind of the record stays");
  assert.equal(engineKey(keyOf("ids", [0xff]), "collections", 2), "255│ids", "a key of the store has no slot");
  assert.equal(engineKey(keyOf("user:1", [0, 9]), "other", 2), "\\x00\\x09user:1", "a family of someone else has none");
});

test("a key is whole if all of its bytes are known", () => {
  assert.ok(isWhole(keyOf("a".repeat(256))));
  assert.ok(!isWhole(keyOf("a".repeat(257))));
});

test("fewer things are spread evenly, and the ends stay", () => {
  assert.deepEqual([evenly(0, 5), evenly(1, 5), evenly(5, 5), evenly(9, 1)], [[], [0], [0, 1, 2, 3, 4], [0]]);
  assert.deepEqual(evenly(9, 5), [0, 2, 4, 6, 8]);
  const some = evenly(30_001, 500);
  assert.deepEqual([some.length, new Set(some).size, some[0], some.at(-1)], [500, 500, 0, 30_000]);
  const steps = some.slice(1).map((index, at) => index - some[at]!);
  assert.ok(steps.every((step) => step === 60 || step === 61), steps.join());
});

test("places of an explanation", () => {
  assert.deepEqual(placeOf("L3 000123.sst filter"), { kind: "file", level: 3, file: 123, part: "filter", name: "L3 000123.sst" });
  assert.deepEqual(placeOf("L0 000007.sst"), { kind: "file", level: 0, file: 7, part: "", name: "L0 000007.sst" });
  assert.equal(placeOf("immutable memtable 1").kind, "memory");
  assert.equal(placeOf("log segment 000007").kind, "log");
});
