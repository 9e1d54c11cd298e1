// What moves on the hillside: rain into the basin, flushes and compactions flowing down while they run,
// and the way of an explained key. Painted on a second canvas over the still picture.
import type { Explanation, Job } from "../api.ts";
import { doneShare } from "../debt.ts";
import { basinsOf, type Block, type Hill, toX, type View } from "./geometry.ts";
import { placeOf } from "./places.ts";

export interface MotionColors {
  water: string;
  water_soft: string;
  flow: string;
  glow: string;
  ink: string;
  card: string;
  found: string;
  no: string;
  basin: string;
}

export interface Scene {
  hill: Hill;
  view: View;
  blocks: Map<number, Block>;
  jobs: Job[];
  /** 0..1 of the memtable, and how many wait for their flush. */
  fill: number;
  immutables: number;
  writes_per_s: number;
  /** The explained key: its place on the axis, and the answer. */
  key_place: number | null;
  explanation: Explanation | null;
  family: string;
  still: boolean;
}

const MOST_STREAMS = 160;

export function paintMotion(g: CanvasRenderingContext2D, scene: Scene, colors: MotionColors, time_ms: number): void {
  g.clearRect(0, 0, scene.hill.width, scene.hill.height);
  paintBasins(g, scene, colors, time_ms);
  let streams = 0;
  for (const job of scene.jobs) {
    if (job.family !== scene.family) continue;
    streams += paintJob(g, scene, job, colors, time_ms, MOST_STREAMS - streams);
  }
  if (scene.key_place !== null && scene.explanation !== null) paintWay(g, scene, colors);
}

function paintBasins(g: CanvasRenderingContext2D, scene: Scene, colors: MotionColors, time_ms: number): void {
  const flush = scene.jobs.find((job) => job.kind === "flush" && job.family === scene.family);
  const drained = flush === undefined ? 0 : doneShare(flush);
  basinsOf(scene.hill, scene.immutables).forEach((basin, at) => {
    const full = at === 0 ? scene.fill : at === 1 ? 1 - drained : 1;
    const depth = Math.max(2, (basin.height - 6) * Math.min(1, full));
    const wave = scene.still ? 0 : 1.6;
    g.save();
    g.beginPath();
    g.roundRect(basin.x, basin.y, basin.width, basin.height, [2, 2, 10, 10]);
    g.fillStyle = colors.basin;
    g.fill();
    g.clip();
    g.fillStyle = at === 0 ? colors.water : colors.water_soft;
    g.beginPath();
    g.moveTo(basin.x, basin.y + basin.height);
    for (let x = 0; x <= basin.width; x += 4) {
      g.lineTo(basin.x + x, basin.y + basin.height - depth + wave * Math.sin(x / 13 + time_ms / 420));
    }
    g.lineTo(basin.x + basin.width, basin.y + basin.height);
    g.fill();
    g.restore();
    g.strokeStyle = colors.water;
    g.lineWidth = 1.5;
    g.beginPath();
    g.roundRect(basin.x, basin.y - 4, basin.width, basin.height + 4, [0, 0, 10, 10]);
    g.stroke();
    if (at === 0) paintRain(g, scene, basin.x, basin.y + basin.height - depth, basin.width, colors, time_ms);
  });
}

/** More drops for more writes: one for every factor of two or so. */
function paintRain(g: CanvasRenderingContext2D, scene: Scene, x: number, surface: number, width: number, colors: MotionColors, time_ms: number): void {
  if (scene.still || scene.writes_per_s < 0.5) return;
  const drops = Math.min(26, Math.round(2 + 1.6 * Math.log2(1 + scene.writes_per_s)));
  g.strokeStyle = colors.water;
  g.lineWidth = 1.4;
  g.lineCap = "round";
  for (let i = 0; i < drops; i++) {
    const along = (time_ms / 900 + i * 0.618) % 1;
    const at = x + 8 + ((i * 0.754877 + Math.floor(time_ms / 900 + i * 0.618) * 0.31) % 1) * (width - 16);
    const y = 4 + (surface - 8) * along;
    g.globalAlpha = 0.75 * Math.min(1, along * 4);
    g.beginPath();
    g.moveTo(at, y);
    g.lineTo(at, y + 5);
    g.stroke();
  }
  g.globalAlpha = 1;
}

/** Inputs glow; drops run from each to where the output will stand; a line there shows how far it is. */
function paintJob(g: CanvasRenderingContext2D, scene: Scene, job: Job, colors: MotionColors, time_ms: number, most: number): number {
  const { hill } = scene;
  const into = job.output_level === null ? undefined : hill.steps[job.output_level];
  if (into === undefined) return 0;
  const inputs = job.inputs.map((input) => scene.blocks.get(input.file)).filter((block) => block !== undefined);
  let from = hill.key_left;
  let to = hill.key_right;
  if (inputs.length > 0) {
    from = Math.max(hill.key_left, Math.min(...inputs.map((block) => block.x)));
    to = Math.min(hill.key_right, Math.max(...inputs.map((block) => block.x + block.width)));
    if (to <= from) return 0;
  }
  const pulse = scene.still ? 0.75 : 0.6 + 0.4 * Math.sin(time_ms / 260);
  g.strokeStyle = colors.glow;
  g.lineWidth = 1.75;
  for (const block of inputs.slice(0, most)) {
    g.globalAlpha = pulse;
    g.beginPath();
    g.roundRect(block.x - 0.5, block.y - 0.5, Math.max(block.width, 1) + 1, block.height + 1, 3);
    g.stroke();
  }
  g.globalAlpha = 1;
  const done = doneShare(job);
  g.lineCap = "round";
  g.lineWidth = 4;
  g.strokeStyle = colors.flow;
  g.beginPath();
  g.moveTo(from, into.tread + 2);
  g.lineTo(from + Math.max(1, (to - from) * done), into.tread + 2);
  g.stroke();
  const sources = inputs.filter((block) => block.level !== job.output_level).slice(0, most);
  if (scene.still) return sources.length;
  const head = from + (to - from) * done;
  if (job.kind === "flush") {
    const basin = basinsOf(hill, Math.max(1, scene.immutables))[1]!;
    paintStream(g, basin.x + basin.width / 2, basin.y + basin.height, head, into.tread - 3, 9, colors, time_ms);
    return 1;
  }
  for (const block of sources) {
    // A merge reads all inputs at one key; wide blocks over each other are told apart by some distance.
    const apart = (((block.number * 0.618) % 1) - 0.5) * Math.min(140, block.width * 0.4);
    const reach = Math.min(Math.max(block.x + block.width * done + apart, block.x, hill.key_left), block.x + block.width, hill.key_right);
    paintStream(g, reach, block.y + block.height, head, into.tread - 3, 7, colors, time_ms + block.number * 97);
  }
  return sources.length;
}

function paintStream(g: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number, drops: number, colors: MotionColors, time_ms: number): void {
  const bend = y0 + (y1 - y0) * 0.55;
  g.strokeStyle = colors.flow;
  g.globalAlpha = 0.28;
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(x0, y0);
  g.bezierCurveTo(x0, bend, x1, bend, x1, y1);
  g.stroke();
  g.fillStyle = colors.flow;
  for (let i = 0; i < drops; i++) {
    const t = (time_ms / 1300 + i / drops) % 1;
    const u = 1 - t;
    const x = u * u * u * x0 + 3 * u * u * t * x0 + 3 * u * t * t * x1 + t * t * t * x1;
    const y = u * u * u * y0 + 3 * u * u * t * bend + 3 * u * t * t * bend + t * t * t * y1;
    g.globalAlpha = Math.min(1, 4 * t, 4 * u);
    g.beginPath();
    g.arc(x, y, 2.1, 0, Math.PI * 2);
    g.fill();
  }
  g.globalAlpha = 1;
}

/** The plumb line of an explained key with a bead at each place asked. */
function paintWay(g: CanvasRenderingContext2D, scene: Scene, colors: MotionColors): void {
  const { hill, explanation } = scene;
  const x = Math.min(Math.max(toX(hill, scene.view, scene.key_place!), hill.key_left), hill.key_right);
  const beads: { y: number; color: string }[] = [];
  for (const step of explanation!.steps) {
    if (step.family !== scene.family) continue;
    const place = placeOf(step.place);
    const color = step.outcome === "found" ? colors.found : step.outcome === "maybe" ? colors.flow : colors.no;
    if (place.level === null) {
      if (place.kind === "memory") beads.push({ y: hill.sky - 12, color });
      continue;
    }
    const block = scene.blocks.get(place.file ?? -1);
    const level = hill.steps[place.level];
    if (level !== undefined) beads.push({ y: block === undefined ? level.tread - 8 : block.y + block.height / 2, color });
  }
  const last = beads.at(-1);
  if (last === undefined) return;
  g.strokeStyle = colors.ink;
  g.lineWidth = 1.5;
  g.setLineDash([2, 3]);
  g.beginPath();
  g.moveTo(x, 18);
  g.lineTo(x, last.y);
  g.stroke();
  g.setLineDash([]);
  for (const bead of beads) {
    g.fillStyle = bead.color;
    g.strokeStyle = colors.card;
    g.lineWidth = 2;
    g.beginPath();
    g.arc(x, bead.y, 5, 0, Math.PI * 2);
    g.fill();
    g.stroke();
  }
}
