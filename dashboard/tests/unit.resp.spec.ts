// Command lines, and replies as redis-cli prints them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { reply } from "../mock/command.ts";
import { printed, quoted, trimmed } from "../src/resp.ts";
import type { Key } from "../src/api.ts";

function key(hex: string, len = hex.length / 2): Key {
  return { text: "", hex, len };
}

test("strings are quoted so that the command line takes them back", () => {
  assert.equal(quoted(key("00610a0d09")), '"\\x00a\\n\\r\\t"');
  assert.equal(quoted(key("225cc3a47f")), '"\\"\\\\\\xc3\\xa4\\x7f"');
  assert.equal(quoted(key("")), '""');
  assert.equal(quoted(key("6162", 5000)), '"ab" … and 4998 bytes more');
});

test("a command line loses blanks at its ends, and no byte of a key", () => {
  assert.equal(trimmed("\t GET  a \r\n"), "GET  a");
  assert.equal(trimmed("\u00a0GET a\u00a0\u3000\ufeff"), "\u00a0GET a\u00a0\u3000\ufeff");
  assert.equal(trimmed(" \t"), "");
});

test("every type has its look", () => {
  const lines = (of: Parameters<typeof printed>[0]) => printed(of).join("\n");
  assert.equal(lines(reply("simple", "OK")), "OK");
  assert.equal(lines(reply("error", "ERR no")), "(error) ERR no");
  assert.equal(lines(reply("integer", "-9223372036854775808")), "(integer) -9223372036854775808");
  assert.equal(lines(reply("double", "1.5")), "(double) 1.5");
  assert.equal(lines(reply("boolean", "true")), "(true)");
  assert.equal(lines(reply("null", null)), "(nil)");
  assert.equal(lines(reply("verbatim", "txt")), "txt");
  for (const [type, name] of [["array", "array"], ["set", "set"], ["map", "hash"]] as const) assert.equal(lines(reply(type, null)), `(empty ${name})`);
});

test("elements are numbered and nested ones stand behind their numbers", () => {
  const one = reply("integer", "1");
  const nested = reply("array", null, [reply("array", null, [one, one]), reply("set", null, [one]), reply("map", null, [reply("string", "k"), reply("array", null, [one, one])])]);
  assert.deepEqual(printed(nested), [
    "1) 1) (integer) 1", "   2) (integer) 1", "2) 1~ (integer) 1", '3) 1# "k" => 1) (integer) 1', "      2) (integer) 1",
  ]);
  assert.deepEqual(printed(reply("array", null, Array(10).fill(one), 12)).slice(8), [" 9) (integer) 1", "10) (integer) 1", "… and 2 more"]);
  assert.deepEqual(printed(reply("map", null, [one, one], 8)), ["1# (integer) 1 => (integer) 1", "… and 3 more"]);
});
