// The cluster: nodes with their share of the work, shards with their owners; what is not served comes first.
// Hidden without a cluster.
import type { Cluster, ClusterNode, ClusterShard } from "../api.ts";
import { get, poll, Refused } from "../client.ts";
import { card, h, replace, setText, whileVisible } from "../dom.ts";
import { count, percent, plural, ratio } from "../format.ts";
import type { Store } from "../store.ts";
import { amplification, since, sum, type Work, workOf } from "../work.ts";

const EVERY_MS = 2000;
/** While the card cannot be seen: whether there is a cluster at all. */
const RARELY_MS = 10_000;
/** How long the server may take: it asks all nodes, of which some may be gone. */
const ANSWER_MS = 75_000;
/** Rows of shards; a cluster with more lists its first ones, and says how many there are. */
const MOST_SHARDS = 40;
const ID_DIGITS = 8;

export function clusterCard(store: Store): HTMLElement {
  const state = h("span", { class: "num", "data-cluster": "state" });
  const { root, body } = card("cluster", "Cluster", state);
  root.hidden = true;
  const nodes = h("tbody", { "data-cluster": "nodes" });
  const together = h("tfoot", { "data-cluster": "together" });
  const shards = h("tbody", { "data-cluster": "shards" });
  const more = h("p", { class: "muted" });
  body.append(
    table("Nodes of the cluster", ["node", "address", "state", "lease", "reads", "writes", "write amp.", "keys"], nodes, together),
    table("Shards of the cluster", ["shard", "part", "instance", "owner", "epoch", "state", "away", "moves"], shards),
    more);
  let visible = false;
  let asked = 0;
  let last: Work | null = null;
  const wanted = () => visible || Date.now() - asked >= RARELY_MS;

  const show = (cluster: Cluster): void => {
    const away = cluster.shards.filter((shard) => !shard.is_served).length;
    const text = cluster.placement === null ? "not created yet" : away > 0 ? `${away} of ${plural(cluster.shards.length, "shard")} not served`
      : `${plural(cluster.shards.length, "shard")}, all served`;
    setText(state, `${cluster.name}: ${text}`);
    state.classList.toggle("bad", !cluster.is_served);
    const now = workOf(cluster);
    let work = since(last, now);
    // Nothing was done since the last look: what was done since the open says more.
    if (sum(work, "reads") + sum(work, "writes") === 0) work = now;
    last = now;
    replace(nodes, ...cluster.nodes.map((node) => nodeRow(node, cluster, work)));
    const wa = amplification(sum(now, "device_bytes"), sum(now, "user_bytes"));
    const keys = cluster.nodes.reduce((all, node) => all + (node.report?.keys ?? 0), 0);
    replace(together, h("tr", {}, h("th", { colspan: 4 }, "together"), ...["", "", ratio(wa), count(keys)].map((cell) => h("td", { class: "num" }, cell))));
    replace(shards, ...cluster.shards.slice(0, MOST_SHARDS).map((shard) => shardRow(shard, cluster)));
    setText(more, cluster.shards.length > MOST_SHARDS ? `and ${plural(cluster.shards.length - MOST_SHARDS, "shard")} more` : "");
  };

  const now = poll(store, EVERY_MS, wanted, async () => {
    asked = Date.now();
    const asking = get<Cluster | null>("cluster", {}, { within_ms: ANSWER_MS });
    const cluster = await asking.catch((error: unknown) => {
      // What the card goes on showing is of an earlier moment.
      setText(state, `not known now: ${error instanceof Refused ? error.message : "the server does not answer"}`);
      state.classList.add("bad");
      throw error;
    });
    root.hidden = cluster === null;
    if (cluster !== null) show(cluster);
  });
  whileVisible(root, (is) => {
    visible = is;
    if (is) now();
  });
  return root;
}

function table(label: string, columns: string[], ...parts: HTMLElement[]): HTMLElement {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", {}, column)))), ...parts));
}

function nodeRow(node: ClusterNode, cluster: Cluster, work: Work): HTMLElement {
  const { report } = node;
  const name = h("td", { class: "mono", title: node.id }, node.id.slice(0, ID_DIGITS) + (node.id === cluster.me ? " (this)" : ""));
  const address = h("td", { class: "mono" }, node.redis_address);
  if (report === null) {
    return h("tr", { "data-node": node.id }, name, address, h("td", { class: "bad", colspan: 6 }, node.error ?? "not alive"));
  }
  const state = [report.is_draining ? "draining" : "alive", ...(report.is_coordinator ? [] : ["owns no shards"]), ...(report.leads_partitioner ? ["plans"] : [])];
  const share = (of: "reads" | "writes") => {
    const all = sum(work, of);
    return all === 0 ? "–" : percent((work.get(node.id)?.[of] ?? 0) / all);
  };
  const late = report.lease_age_ms * 2 > report.lease_ttl_ms;
  const seconds = (ms: number) => (ms / 1000).toFixed(1);
  return h("tr", { "data-node": node.id }, name, address, h("td", {}, state.join(", ")),
    h("td", { class: late ? "num bad" : "num" }, `${seconds(report.lease_age_ms)} of ${seconds(report.lease_ttl_ms)} s`),
    h("td", { class: "num", "data-share": "reads" }, share("reads")), h("td", { class: "num", "data-share": "writes" }, share("writes")),
    h("td", { class: "num" }, ratio(amplification(report.device_bytes, report.user_bytes))), h("td", { class: "num" }, count(report.keys)));
}

function shardRow(shard: ClusterShard, cluster: Cluster): HTMLElement {
  const address = (id: string | null) => (id === null ? "–" : cluster.nodes.find((node) => node.id === id)?.redis_address ?? id.slice(0, ID_DIGITS));
  const moves = shard.moves.length + shard.waiting_moves === 0 ? "–" : `${shard.moves.length} running, ${plural(shard.waiting_moves, "key")} waiting`;
  return h("tr", { "data-shard": shard.id, "data-served": shard.is_served ? "yes" : "no" },
    h("td", { class: "num" }, shard.id), h("td", { class: "mono", title: shard.ranges.join(" ") }, shard.ranges.join(" ")),
    h("td", { class: "mono" }, address(shard.instance)), h("td", { class: "mono" }, address(shard.owner)), h("td", { class: "num" }, shard.epoch),
    h("td", { class: shard.is_served ? "" : "bad" }, shard.state), h("td", { class: "num", "data-away": shard.exceptions ?? "" }, count(shard.exceptions)),
    h("td", { title: shard.moves.join("\n") }, moves));
}
