// Where everything of the hillside is, in CSS pixels: steps, the basin on top, and a block for each SST.
// Pure. The step of a level reaches from `top` (where the level above stands) down to `tread`.
import type { KeyAxis } from "../axis.ts";
import type { FamilyShape, FileShape } from "../api.ts";

export interface Step {
  level: number;
  top: number;
  tread: number;
  left: number;
  right: number;
  /** Of the first of some empty levels that share one low step: the last of them; else `null`. */
  folded_to: number | null;
  /** It is one of the others of these, and drawn with the first. */
  is_hidden: boolean;
}

export interface Block {
  number: number;
  level: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Hill {
  width: number;
  height: number;
  key_left: number;
  key_right: number;
  /** Rises above the first step; the basin stands on its ground. */
  sky: number;
  steps: Step[];
  /** Room under a label for blocks. */
  room: number;
}

/** The part of the key axis that is shown, 0..1. */
export interface View {
  from: number;
  to: number;
}

export const LABEL = 19;
const FOOT = 30;
const LEAST_STEPS = 4;
/** Height of the step of empty levels. */
const FOLD = LABEL + 3;

/** The steps of a family's levels. Below L0, whose files come and go, empty levels next to each other share a low one;
 *  a family without any file has a whole hill. */
export function hillOf(family: FamilyShape | null, width: number): Hill {
  const narrow = width < 560;
  const levels = family?.levels ?? [];
  const deepest = levels.reduce((last, level, at) => (level.file_count > 0 ? at : last), -1);
  const count = Math.max(LEAST_STEPS, deepest + 1);
  const folds = (level: number) => deepest >= 0 && level > 0 && (levels[level]?.file_count ?? 0) === 0;
  const begins = (level: number) => folds(level) && !folds(level - 1);
  const all = Array.from({ length: count }, (_, level) => level);
  const shown = all.filter((level) => !folds(level) || begins(level)).length;
  const full = all.filter((level) => !folds(level)).length;
  const sky = narrow ? 84 : 96;
  const pitch = narrow ? Math.max(50, 74 - full * 4) : Math.min(88, Math.max(56, 350 / full));
  const inset = narrow ? 4 : Math.min(26, width / 50);
  const steps: Step[] = [];
  let top = sky;
  let index = 0;
  for (const level of all) {
    const before = steps.at(-1);
    if (folds(level) && !begins(level)) {
      steps.push({ ...before!, level, folded_to: null, is_hidden: true });
      continue;
    }
    const side = inset * (shown - 1 - index++);
    const next = all.find((other) => other > level && !folds(other)) ?? count;
    const tread = top + (folds(level) ? FOLD : pitch);
    steps.push({ level, top, tread, left: side, right: width - side, folded_to: folds(level) ? next - 1 : null, is_hidden: false });
    top = tread;
  }
  const pad = inset * (shown - 1) + (narrow ? 8 : 14);
  return { width, height: top + FOOT, key_left: pad, key_right: width - pad, sky, steps, room: pitch - LABEL - 5 };
}

export function toX(hill: Hill, view: View, place: number): number {
  return hill.key_left + ((place - view.from) / (view.to - view.from)) * (hill.key_right - hill.key_left);
}

export function toPlace(hill: Hill, view: View, x: number): number {
  return view.from + ((x - hill.key_left) / (hill.key_right - hill.key_left)) * (view.to - view.from);
}

const LEAST_HEIGHT = 7;

/** Blocks stand on the tread of their level, high by size. In L0, where key ranges overlap, they lie on
 *  each other, newest on top. */
export function blocksOf(family: FamilyShape | null, hill: Hill, axis: KeyAxis, view: View): Block[] {
  const blocks: Block[] = [];
  const gap = (width: number) => (width > 5 ? 1.5 : width > 2.5 ? 0.75 : 0);
  for (const [level, { files }] of (family?.levels ?? []).entries()) {
    const step = hill.steps[level];
    if (files === null || step === undefined) continue;
    const lanes = level === 0 ? lanesOf(files) : null;
    const largest = files.reduce((most, file) => Math.max(most, file.size_bytes), 1);
    for (const file of files) {
      const x0 = toX(hill, view, axis.at(file.smallest.hex));
      const x1 = Math.max(x0 + 1, toX(hill, view, axis.at(file.largest.hex)));
      const width = Math.max(0.5, x1 - x0 - gap(x1 - x0));
      let height = Math.max(LEAST_HEIGHT, hill.room * (file.size_bytes / largest));
      let y = step.tread - height;
      if (lanes !== null) {
        const pitch = Math.min(13, hill.room / Math.max(1, lanes.count));
        height = Math.max(1, pitch - (pitch > 4 ? 1.5 : 0.5));
        y = step.tread - (lanes.of.get(file.number)! + 1) * pitch;
      }
      blocks.push({ number: file.number, level, x: x0, y, width, height });
    }
  }
  return blocks;
}

/** Oldest file lowest, each as low as those it overlaps allow. */
function lanesOf(files: FileShape[]): { of: Map<number, number>; count: number } {
  const of = new Map<number, number>();
  const lanes: FileShape[][] = [];
  for (const file of [...files].reverse()) {
    let lane = 0;
    for (const [at, others] of lanes.entries()) {
      if (others.some((other) => other.smallest.hex <= file.largest.hex && file.smallest.hex <= other.largest.hex)) lane = at + 1;
    }
    (lanes[lane] ??= []).push(file);
    of.set(file.number, lane);
  }
  return { of, count: lanes.length };
}

/** The basin on the hilltop that is the memtable, and smaller ones beside it that wait for their flush. */
export function basinsOf(hill: Hill, immutables: number): { x: number; y: number; width: number; height: number }[] {
  const narrow = hill.width < 560;
  const width = narrow ? 138 : 190;
  const height = narrow ? 40 : 46;
  const y = hill.sky - height;
  const first = { x: hill.width / 2 - width / 2, y, width, height };
  const small = { width: narrow ? 26 : 40, height: narrow ? 22 : 28 };
  const shown = Math.min(immutables, 4);
  return [first, ...Array.from({ length: shown }, (_, i) => ({
    x: first.x + width + 8 + i * (small.width + 6), y: hill.sky - small.height, ...small,
  }))];
}

/** The block at a point; the nearest within a few pixels, since thousands of them are thin. */
export function blockAt(blocks: Block[], x: number, y: number, reach = 4): Block | null {
  let best: Block | null = null;
  let least = reach;
  for (const block of blocks) {
    const dx = Math.max(block.x - x, 0, x - block.x - block.width);
    const dy = Math.max(block.y - y, 0, y - block.y - block.height);
    const distance = Math.max(dx, dy);
    if (distance < least) {
      least = distance;
      best = block;
    }
  }
  return best;
}
