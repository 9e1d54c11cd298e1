// A make-believe cluster of three nodes, one of which is gone, whose shard nobody serves yet.
import type { Cluster } from "../src/api.ts";
import type { Engine } from "./engine.ts";

const ID = (digit: string) => digit.repeat(40);

export function cluster(engine: Engine): Cluster | null {
  if (engine.scenario !== "live") return null;
  const node = (digit: string, port: number, reads: number, writes: number) => ({
    id: ID(digit), redis_address: `127.0.0.1:${port}`, bus_address: `127.0.0.1:${port + 10_000}`, is_alive: true, error: null,
    report: {
      revision: 41, lease_age_ms: 420, lease_ttl_ms: 3000, is_coordinator: true, leads_partitioner: digit === "a", is_draining: false,
      moved_keys: 12, reads, writes, user_bytes: writes * 100, device_bytes: writes * 250, keys: 1000 * port,
    },
  });
  const shard = (id: number, ranges: string, digit: string) => ({
    id, ranges: [ranges], instance: ID(digit), owner: ID(digit), epoch: 30 + id, is_served: true, state: "serving",
    exceptions: 1234 * id, waiting_moves: 0, moves: [],
  });
  // Three quarters of the reads and one of the writes are on the first node, now and since the open.
  const [r, w] = [4 * Math.round(engine.hits + 1), 4 * Math.round(engine.commands / 5 + 1)];
  const gone = { ...node("c", 7002, 0, 0), is_alive: false, error: "the node is not alive", report: null };
  return {
    name: "terrace", placement: "slots", revision: 41, is_served: false, me: ID("a"),
    nodes: [node("a", 7000, 0.75 * r, 0.25 * w), node("b", 7001, 0.25 * r, 0.75 * w), gone],
    shards: [
      { ...shard(3, "10922-16383", "c"), is_served: false, state: "no owner", exceptions: null },
      { ...shard(1, "0-5460", "a"), waiting_moves: 40, moves: ["31.1 exporting"] },
      shard(2, "5461-10921", "b"),
    ],
  };
}
