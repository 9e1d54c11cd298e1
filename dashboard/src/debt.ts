// What the store still has to do: merges, flushes, garbage of the value log. Pure.
import type { FamilyShape, Job, Shape } from "./api.ts";

export interface Debt {
  /** Of the family with the most files in L0. */
  l0_files: number;
  l0_bytes: number;
  l0_compaction_files: number;
  l0_slowdown_files: number;
  l0_stop_files: number;
  /** Immutable memtables, of all families. */
  waiting_memtables: number;
  /** Compactions that run, and what they have not read yet. */
  running_jobs: number;
  running_bytes: number;
  /** Garbage in the value log; `null`: there is no value log. */
  garbage_share: number | null;
}

export function debtOf(shape: Shape, jobs: Job[]): Debt {
  const files = (family: FamilyShape) => family.levels[0]?.file_count ?? 0;
  const fullest = shape.families.reduce<FamilyShape | null>((most, family) => (most === null || files(family) > files(most) ? family : most), null);
  const running = jobs.filter((job) => job.kind === "compaction");
  return {
    l0_files: fullest === null ? 0 : files(fullest),
    l0_bytes: fullest?.levels[0]?.size_bytes ?? 0,
    l0_compaction_files: fullest?.l0_compaction_files ?? 0,
    l0_slowdown_files: fullest?.l0_slowdown_files ?? 0,
    l0_stop_files: fullest?.l0_stop_files ?? 0,
    waiting_memtables: shape.families.reduce((sum, family) => sum + family.immutable_memtables, 0),
    running_jobs: running.length,
    running_bytes: running.reduce((sum, job) => sum + Math.max(0, job.input_bytes - job.read_bytes), 0),
    garbage_share: shape.value_bytes > 0 ? Math.min(1, shape.garbage_bytes / shape.value_bytes) : null,
  };
}

/** How far a job is, 0 to 1: what it has read of its input. */
export function doneShare(job: Job): number {
  return job.input_bytes > 0 ? Math.min(1, job.read_bytes / job.input_bytes) : 0;
}
