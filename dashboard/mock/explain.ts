// EXPLAIN in the mock: a walk down the make-believe tree that reads like the engine's own.
import type { Explanation, ExplainStep } from "../src/api.ts";
import type { Engine } from "./engine.ts";
import { engineKeyOf, keyOf, positionOf } from "./keys.ts";
import { rng } from "./rng.ts";

export function explain(engine: Engine, db: number, name: string): Explanation {
  const steps: ExplainStep[] = [];
  const random = rng(name.length * 31 + [...name].reduce((sum, c) => sum + c.charCodeAt(0), 0));
  const step = (place: string, asked: string, answer: string, outcome: ExplainStep["outcome"], ns: number, reads = 0) => {
    steps.push({ family: "default", place, asked, answer, outcome, ns: Math.round(ns * (0.8 + 0.4 * random())), device_reads: reads });
  };
  const missing = db !== 0 || name.includes("nobody");
  const x = positionOf(name);
  step("memtable", "newest version of the key", "not here", "no", 210);
  for (let i = 1; i <= engine.immutables; i++) step(`immutable memtable ${i}`, "newest version of the key", "not here", "no", 190);
  let found = false;
  engine.files.forEach((files, level) => {
    for (const file of files) {
      if (found || x < file.from || x > file.to) continue;
      const place = `L${level} ${String(file.number).padStart(6, "0")}.sst`;
      const last = level === engine.deepest();
      const heat = engine.density(x);
      const units = Math.min(5, Math.round(heat * 2 + 1));
      const passes = (last && !missing) || random() < 0.06;
      step(`${place} filter`, `partition ${Math.floor(random() * 4)}: ${units} of 5 units in memory`,
        units === 0 ? "no unit in memory" : passes ? "maybe" : `no (unit ${1 + Math.floor(random() * units)} says so)`,
        units === 0 ? "skip" : passes ? "maybe" : "no", 95);
      if (!passes) continue;
      const block = Math.floor(random() * 2000);
      if (file.number % 5 !== 0 && level > 0) step(`${place} model`, "block of the key", `block ${block}, segment ${Math.floor(random() * 12)}, exact`, "maybe", 60);
      else step(`${place} index`, "block of the key", `block ${block}`, "maybe", 480, heat > 0.5 ? 0 : 1);
      found = last && !missing;
      step(`${place} block`, `block ${block}${heat > 0.5 ? ", in the cache" : ""}`, found ? "value of 118 bytes" : "not here", found ? "found" : "no", heat > 0.5 ? 640 : 84_000, heat > 0.5 ? 0 : 1);
    }
  });
  const value = keyOf(`{"name":"${name}","seen":1766384400,"tags":["a","b"],"note":"made up by the mock"}`);
  return {
    db, key: keyOf(name), engine_key: engineKeyOf(name, db, engine.slots).hex, type: found ? "string" : null,
    found: found ? { value, expires_at_ms: name.startsWith("session:") ? Date.now() + 1_200_000 : null } : null,
    steps, total_ns: steps.reduce((sum, s) => sum + s.ns, 0), device_reads: steps.reduce((sum, s) => sum + s.device_reads, 0),
    memory: steps.some((s) => s.device_reads > 0) ? "One more MiB would save the most in the pool `blocks`: about 12.0 device reads a second." : null,
  };
}
