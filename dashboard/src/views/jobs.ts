// The jobs that run now, with how far they are, and those that just ended.
import type { FinishedJob, Job } from "../api.ts";
import { doneShare } from "../debt.ts";
import { h, replace } from "../dom.ts";
import { bytes, duration, plural } from "../format.ts";
import type { Store } from "../store.ts";

const MOST = 4;
const NAMES: Record<Job["kind"], string> = { flush: "flush", compaction: "compaction", garbage_collection: "garbage collection" };

export function jobList(store: Store): HTMLElement {
  const list = h("ul", { class: "jobs", "aria-label": "Jobs" });
  store.on("live", (live) => {
    const now = live.summary.now_ms;
    const running = live.jobs.slice(0, MOST).map((job) => row(job, now, null));
    const ended = store.recent_jobs.slice(0, MOST - running.length).map((job) => row(job, now, job));
    const more = live.jobs.length - running.length;
    const rows = [...running, ...ended];
    if (more > 0) rows.push(h("li", { class: "job more" }, `and ${plural(more, "job")} more`));
    if (rows.length === 0) rows.push(h("li", { class: "job quiet" }, "No flush or compaction is running."));
    replace(list, ...rows);
  });
  return list;
}

/** "L1 + L2 → L2", "memtable → L0". */
export function route(job: Job): string {
  if (job.kind === "garbage_collection") return "value log";
  const levels = [...new Set(job.inputs.map((input) => input.level))].sort();
  const from = levels.length === 0 ? "memtable" : levels.map((level) => `L${level}`).join(" + ");
  return `${from} → L${job.output_level ?? "?"}`;
}

function row(job: Job, now_ms: number, ended: FinishedJob | null): HTMLElement {
  const seconds = Math.max(0.001, ((ended?.ended_ms ?? now_ms) - job.started_ms) / 1000);
  const share = ended !== null ? 1 : doneShare(job);
  const bar = h("progress", { max: 100, value: Math.round(share * 100), "aria-label": `${NAMES[job.kind]} ${route(job)}` });
  const files = job.inputs.length > 0 ? plural(job.input_count ?? job.inputs.length, "file") : bytes(job.input_bytes);
  const rate = seconds > 0.5 ? `${bytes(job.written_bytes / seconds)}/s` : "";
  return h("li", { class: `job ${job.kind}${ended === null ? "" : " ended"}`, "data-job": job.id },
    h("span", { class: "job-kind" }, NAMES[job.kind]), h("span", { class: "job-route" }, route(job)), bar,
    h("span", { class: "job-facts num" }, ended === null ? `${files} · ${rate || "starting"}` : `${files} in ${duration(seconds)}`));
}
