// Where memory goes: all pools in one bar, each pool by itself, and what the next MiB would save there.
import type { Memory, Pool } from "../api.ts";
import { card, h, replace, setText, setValue, setWidth } from "../dom.ts";
import { bytes, digits, percent } from "../format.ts";
import type { Store } from "../store.ts";

const HUES = ["memtables", "blocks", "filters", "models", "tables"];

function classOf(pool: Pool, at: number): string {
  return `pool-${HUES.includes(pool.name) ? HUES.indexOf(pool.name) : 5 + (at % 2)}`;
}

interface Row {
  used: HTMLElement;
  fill: HTMLElement;
  gain: HTMLElement;
  gain_fill: HTMLElement;
  piece: HTMLElement;
  root: HTMLElement;
}

export function memory(store: Store): HTMLElement {
  const total = h("span", { class: "num" });
  const { root, body } = card("memory", "Where memory goes", total);
  const stack = h("div", { class: "stack", role: "img" });
  const table = h("div", { class: "pools" });
  const advice = h("p", { class: "advice" });
  body.append(stack, table, advice);
  let rows = new Map<string, Row>();

  const build = (pools: Pool[]): void => {
    rows = new Map(pools.map((pool, at) => {
      const hue = classOf(pool, at);
      const used = h("span", { class: "num", "data-pool": pool.name });
      const fill = h("span", { class: `bar-fill ${hue}` });
      const gain = h("span", { class: "num gain" });
      const gain_fill = h("span", { class: "bar-fill gain-fill" });
      const piece = h("span", { class: `piece ${hue}`, title: pool.name });
      const node = h("div", { class: "pool" },
        h("span", { class: "pool-name" }, h("i", { class: `chip ${hue}` }), pool.name), used, h("span", { class: "bar" }, fill),
        gain, h("span", { class: "bar slim" }, gain_fill));
      return [pool.name, { used, fill, gain, gain_fill, piece, root: node }];
    }));
    replace(stack, ...[...rows.values()].map((row) => row.piece));
    replace(table, h("div", { class: "pool pool-head" }, h("span", {}, "pool"), h("span", {}, "used / limit"), h("span"), h("span", {}, "next MiB saves"), h("span")),
      ...[...rows.values()].map((row) => row.root));
  };

  const update = (memory: Memory): void => {
    if (memory.pools.map((pool) => pool.name).join() !== [...rows.keys()].join()) build(memory.pools);
    const scale = Math.max(memory.budget_bytes, memory.used_bytes, 1);
    const best = memory.pools.reduce<Pool | null>((most, pool) => ((pool.saved_reads_per_mib_s ?? 0) > (most?.saved_reads_per_mib_s ?? 0) ? pool : most), null);
    for (const pool of memory.pools) {
      const row = rows.get(pool.name)!;
      setWidth(row.piece, pool.used_bytes / scale);
      row.piece.title = `${pool.name}: ${bytes(pool.used_bytes)}`;
      setValue(row.used, pool.limit_bytes === null ? bytes(pool.used_bytes) : `${bytes(pool.used_bytes)} / ${bytes(pool.limit_bytes)}`, pool.used_bytes);
      setWidth(row.fill, pool.used_bytes / (pool.limit_bytes ?? scale));
      const gain = pool.saved_reads_per_mib_s;
      setText(row.gain, gain === null ? "not known" : `${digits(gain)} reads/s`);
      row.gain.classList.toggle("muted", gain === null);
      setWidth(row.gain_fill, gain === null || best === null ? 0 : gain / best.saved_reads_per_mib_s!);
      row.root.classList.toggle("best", pool === best);
    }
    const share = memory.budget_bytes > 0 ? memory.used_bytes / memory.budget_bytes : null;
    setText(total, `${bytes(memory.used_bytes)} of ${bytes(memory.budget_bytes)} (${percent(share)})`);
    stack.setAttribute("aria-label", memory.pools.map((pool) => `${pool.name} ${bytes(pool.used_bytes)}`).join(", "));
    const worth = best === null ? "No pool would save reads with more memory now." : `The next MiB is worth most in ${best.name}.`;
    const lending = memory.pools.filter((pool) => pool.lent_bytes > 0);
    const lent = lending.map((pool) => ` Blocks use up to ${bytes(pool.lent_bytes)} that ${pool.name} do not need now.`).join("");
    setText(advice, memory.decision === null ? worth + lent : `${worth}${lent} Memory has moved ${memory.moves} times; at the last step ${memory.decision}.`);
  };
  store.on("live", (live) => update(live.memory));
  return root;
}
