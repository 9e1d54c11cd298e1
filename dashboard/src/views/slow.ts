// The slow log and the latency of each command.
import type { CommandLatencies, SlowLog } from "../api.ts";
import { get, poll } from "../client.ts";
import { card, h, replace, setText, whileVisible } from "../dom.ts";
import { count, micros, middle, moment } from "../format.ts";
import type { Store } from "../store.ts";

const SHOWN = 8;

export function slowLog(store: Store): HTMLElement {
  const about = h("span", { class: "muted" });
  const { root, body } = card("slow", "Slow log", about);
  const slow = h("tbody");
  body.append(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Slow commands" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "at"), h("th", { class: "right" }, "took"), h("th", {}, "command"), h("th", {}, "client"))), slow)));
  let visible = false;
  const now = poll(store, 3000, () => visible, async () => {
    const log = await get<SlowLog>("slowlog");
    setText(about, log.threshold_us === null ? "switched off" : `from ${micros(log.threshold_us)}`);
    const now_ms = store.live?.summary.now_ms ?? Date.now();
    replace(slow, ...log.entries.slice(0, SHOWN).map((entry) => h("tr", {},
      h("td", { class: "num muted" }, moment(entry.at_ms, now_ms)), h("td", { class: "num right strong" }, micros(entry.duration_us)),
      h("td", { class: "mono", title: entry.args.join(" ") }, middle(entry.args.join(" "), 60)),
      h("td", { class: "muted" }, entry.client_name || entry.client))));
    if (log.entries.length === 0) replace(slow, h("tr", {}, h("td", { colspan: "4", class: "muted" }, "No slow command.")));
  });
  whileVisible(root, (is) => {
    visible = is;
    if (is) now();
  });
  return root;
}

export function commands(store: Store): HTMLElement {
  const { root, body } = card("commands", "Commands");
  const rows = h("tbody");
  body.append(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Latency by command" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "command"), ...["calls", "failed", "p50", "p99", "p99.9"].map((name) => h("th", { class: "right" }, name)))), rows)));
  let visible = false;
  const now = poll(store, 3000, () => visible, async () => {
    const { commands } = await get<CommandLatencies>("latency");
    replace(rows, ...commands.slice(0, SHOWN).map((one) => h("tr", {},
      h("td", { class: "mono" }, one.name),
      ...[count(one.calls), count(one.failed), micros(one.p50_us), micros(one.p99_us), micros(one.p999_us)].map((text, at) =>
        h("td", { class: at === 1 && one.failed > 0 ? "num right bad" : "num right" }, text)))));
    if (commands.length === 0) replace(rows, h("tr", {}, h("td", { colspan: "6", class: "muted" }, "No command yet.")));
  });
  whileVisible(root, (is) => {
    visible = is;
    if (is) now();
  });
  return root;
}
