// The foot of the page: facts of the store, and its configuration for those who may see it.
import type { Config } from "../api.ts";
import { get } from "../client.ts";
import { h, replace, setText, setValue } from "../dom.ts";
import { bytes, count, duration, plural } from "../format.ts";
import type { Store } from "../store.ts";

export function footer(store: Store): HTMLElement {
  const keys = h("span", { class: "num", "data-kpi": "dbsize" });
  const disk = h("span", { class: "num", "data-kpi": "disk_bytes" });
  const clients = h("span", { class: "num", "data-kpi": "connected_clients" });
  const total = h("span", { class: "num", "data-kpi": "commands_total" });
  const version = h("span", { class: "num" });
  const options = h("div", { class: "options" });
  const details = h("details", {}, h("summary", {}, "Configuration"), options);
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    get<Config>("config").then(
      (config) => replace(options, ...config.options.map((one) => h("div", {}, h("dt", {}, one.name, one.is_live ? h("sup", { title: "CONFIG SET changes it live" }, "live") : ""), h("dd", { class: "mono" }, one.value || "–")))),
      (error: Error) => setText(options, `Not to be seen: ${error.message}.`),
    );
  });
  store.on("live", ({ summary }) => {
    setText(version, `Terrace ${summary.version}, up ${duration(summary.uptime_s)}`);
    setValue(keys, `about ${count(summary.dbsize_estimate)} keys`, summary.dbsize_estimate);
    setValue(disk, `${bytes(summary.disk_bytes)} on disk`, summary.disk_bytes);
    setValue(clients, plural(summary.connected_clients, "client"), summary.connected_clients);
    setValue(total, `${plural(summary.commands_total, "command")} since the start`, summary.commands_total);
  });
  return h("footer", { class: "foot" }, h("div", { class: "row" }, version, keys, disk, clients, total, h("a", { href: "./api.html" }, "HTTP API")), details);
}
