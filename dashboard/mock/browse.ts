// Keys and values of the make-believe store: 130 keys of each kind, in order.
import type { KeyList, KeyValue, ValueElement } from "../src/api.ts";
import type { Engine } from "./engine.ts";
import { keyOf } from "./keys.ts";

const PAGE = 100;
const KINDS: [string, string][] = [["board:", "zset"], ["cart:", "hash"], ["feed:", "list"], ["session:", "string"], ["tags:", "set"], ["user:", "string"]];

function typeOf(name: string): string | null {
  return KINDS.find(([prefix]) => name.startsWith(prefix))?.[1] ?? null;
}

export function keys(engine: Engine, db: number, prefix: string, after: string | null): KeyList {
  const all = engine.scenario === "empty" || db !== 0 ? []
    : KINDS.flatMap(([kind]) => Array.from({ length: 130 }, (_, i) => `${kind}${String(i * 7).padStart(6, "0")}`));
  const left = all.filter((name) => name.startsWith(prefix) && (after === null || name > after));
  const shown = left.slice(0, PAGE);
  const has_more = left.length > PAGE;
  return {
    db, prefix: keyOf(prefix), has_more, next: has_more ? keyOf(shown.at(-1)!).hex : null,
    keys: shown.map((name) => ({ key: keyOf(name), type: typeOf(name)! })),
  };
}

export function value(db: number, name: string): KeyValue {
  const type = db === 0 ? typeOf(name) : null;
  const told: KeyValue = { db, key: keyOf(name), type, expires_at_ms: null, size: 0, text: null, elements: [] };
  if (type === null) return told;
  if (type === "string") {
    const text = keyOf(`{"name":"${name}","seen":1766384400,"note":"made up by the mock"}`);
    return { ...told, text, size: text.len, expires_at_ms: name.startsWith("session:") ? Date.now() + 1_200_000 : null };
  }
  const element = (i: number): ValueElement => ({
    name: type === "list" ? null : keyOf(`${type}-member-${i}`),
    value: type === "hash" || type === "list" ? keyOf(`value ${i} of ${name}`) : null,
    score: type === "zset" ? String(i * 1.5) : null,
  });
  return { ...told, size: 340, elements: Array.from({ length: PAGE }, (_, i) => element(i)) };
}
