// What the nodes of a cluster did, and what between two looks. Pure.
import type { Cluster, NodeReport } from "./api.ts";

/** What the nodes did: reads, writes and bytes by node id. */
export type Work = Map<string, Pick<NodeReport, "reads" | "writes" | "user_bytes" | "device_bytes">>;

export function workOf(cluster: Cluster): Work {
  return new Map(cluster.nodes.flatMap((node) => (node.report === null ? [] : [[node.id, node.report]])));
}

/** Counters of `now` less those of `before`; a node that was restarted since, or is new, counts from 0. */
export function since(before: Work | null, now: Work): Work {
  return new Map([...now].map(([id, work]) => {
    const old = before?.get(id);
    if (old === undefined || old.reads > work.reads || old.writes > work.writes) return [id, work];
    return [id, {
      reads: work.reads - old.reads, writes: work.writes - old.writes,
      user_bytes: work.user_bytes - old.user_bytes, device_bytes: work.device_bytes - old.device_bytes,
    }];
  }));
}

export function sum(work: Work, of: "reads" | "writes" | "user_bytes" | "device_bytes"): number {
  return [...work.values()].reduce((all, one) => all + one[of], 0);
}

/** Bytes written to the device for each byte of users; `null` before the first. */
export function amplification(device_bytes: number, user_bytes: number): number | null {
  return user_bytes === 0 ? null : device_bytes / user_bytes;
}
