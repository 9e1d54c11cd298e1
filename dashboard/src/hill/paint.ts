// Paints the hillside: sky, ground, treads, blocks. What moves is painted over it by motion.ts.
import type { FamilyShape, Shape } from "../api.ts";
import { css, heatShare, RAMP_STEPS, type Rgb } from "../color.ts";
import { bytes, count, percent, plural } from "../format.ts";
import { type Block, type Hill, LABEL } from "./geometry.ts";

export interface Colors {
  sky_top: string;
  sky_low: string;
  far: string;
  ground: string;
  ground_deep: string;
  edge: string;
  water: string;
  over: string;
  ink: string;
  muted: string;
  outline: string;
  ramp: Rgb[];
}

/** Blocks narrower than this are gathered into columns. */
const NARROW = 2;

export function paintGround(g: CanvasRenderingContext2D, hill: Hill, colors: Colors): void {
  const { width, height } = hill;
  g.clearRect(0, 0, width, height);
  const sky = g.createLinearGradient(0, 0, 0, height);
  sky.addColorStop(0, colors.sky_top);
  sky.addColorStop(0.55, colors.sky_low);
  g.fillStyle = sky;
  g.fillRect(0, 0, width, height);
  paintFarHills(g, hill, colors);
  const ground = g.createLinearGradient(0, hill.sky, 0, height);
  ground.addColorStop(0, colors.ground);
  ground.addColorStop(1, colors.ground_deep);
  for (const step of hill.steps) {
    if (step.is_hidden) continue;
    g.fillStyle = ground;
    g.beginPath();
    g.roundRect(step.left, step.top, step.right - step.left, height - step.top + 20, [12, 12, 0, 0]);
    g.fill();
    g.strokeStyle = colors.edge;
    g.lineWidth = 1;
    g.stroke();
  }
}

function paintFarHills(g: CanvasRenderingContext2D, hill: Hill, colors: Colors): void {
  g.fillStyle = colors.far;
  for (const [base, swing, wave, phase] of [[0.42, 26, 210, 0.4], [0.62, 34, 150, 2.1]] as const) {
    g.beginPath();
    g.moveTo(0, hill.height);
    for (let x = 0; x <= hill.width; x += 8) {
      g.lineTo(x, hill.height * base + swing * Math.sin(x / wave + phase) + 9 * Math.sin(x / 47 + phase));
    }
    g.lineTo(hill.width, hill.height);
    g.fill();
  }
}

/** The tread that a level stands on, filled with water as far as the level is filled to its target. */
export function paintSteps(g: CanvasRenderingContext2D, hill: Hill, family: FamilyShape | null, colors: Colors): void {
  const narrow = hill.width < 560;
  for (const step of hill.steps) {
    if (step.is_hidden) continue;
    const level = family?.levels[step.level];
    const left = step.left + 10;
    const right = step.right - 10;
    g.strokeStyle = colors.edge;
    g.lineWidth = 4;
    g.lineCap = "round";
    line(g, left, right, step.tread + 2);
    const full = level?.target_bytes ? level.size_bytes / level.target_bytes : 0;
    if (full > 0.004) {
      g.strokeStyle = full > 1.1 ? colors.over : colors.water;
      line(g, left, left + (right - left) * Math.min(1, full), step.tread + 2);
    }
    g.textBaseline = "middle";
    g.font = "600 11px system-ui, sans-serif";
    g.fillStyle = colors.ink;
    const y = step.top + LABEL / 2 + 3;
    g.textAlign = "left";
    const text_left = step.left + 12;
    const last = step.folded_to ?? step.level;
    g.fillText(last > step.level ? `L${step.level}–L${last}` : `L${step.level}`, text_left, y);
    g.font = "11px system-ui, sans-serif";
    g.fillStyle = colors.muted;
    if (level === undefined || level.file_count === 0) {
      g.fillText("empty", text_left + (last > step.level ? 48 : 24), y);
      continue;
    }
    g.fillText(`${plural(level.file_count, "file")} · ${bytes(level.size_bytes)}`, text_left + 24, y);
    g.textAlign = "right";
    const entries = `${count(level.entry_count)} entries`;
    const fill = level.target_bytes ? `${percent(full)} of target` : "";
    const parts = narrow ? [fill || entries] : [entries, fill].filter((part) => part !== "");
    g.fillText(parts.join(" · "), step.right - 12, y);
  }
}

function line(g: CanvasRenderingContext2D, from: number, to: number, y: number): void {
  g.beginPath();
  g.moveTo(from, y);
  g.lineTo(to, y);
  g.stroke();
}

/** What lies under the hill: the value log. */
export function paintFoot(g: CanvasRenderingContext2D, hill: Hill, shape: Shape | null, colors: Colors): void {
  const y = hill.height - 12;
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  g.textAlign = "left";
  g.fillStyle = colors.muted;
  if (shape === null) return;
  const parts = [plural(shape.log_segments, "log segment")];
  if (shape.value_segments > 0) {
    parts.push(`${plural(shape.value_segments, "value segment")}, ${bytes(shape.value_bytes)}`);
    if (hill.width >= 560) parts.push(`${percent(shape.value_bytes > 0 ? shape.garbage_bytes / shape.value_bytes : 0)} garbage`);
  }
  g.fillText(parts.join(" · "), 12, y);
}

/** Blocks in the colour of their heat. Thin ones become columns: height of the highest, heat of all. */
export function paintBlocks(g: CanvasRenderingContext2D, hill: Hill, blocks: Iterable<Block & { heat: number; alpha: number }>, hottest: number, colors: Colors): void {
  const columns = new Map<number, { block: Block; height: number; heat: number; n: number }>();
  const fill = (heat: number) => css(colors.ramp[Math.round(heatShare(heat, hottest) * (RAMP_STEPS - 1))]!);
  g.lineWidth = 1;
  g.strokeStyle = colors.outline;
  g.save();
  g.beginPath();
  g.rect(hill.key_left - 2, 0, hill.key_right - hill.key_left + 4, hill.height);
  g.clip();
  for (const block of blocks) {
    if (block.x + block.width < hill.key_left - 2 || block.x > hill.key_right + 2) continue;
    if (block.width < NARROW) {
      const key = block.level * 100_000 + Math.round(block.x / NARROW);
      const column = columns.get(key) ?? { block, height: 0, heat: 0, n: 0 };
      column.height = Math.max(column.height, block.height);
      column.heat += block.heat;
      column.n++;
      columns.set(key, column);
      continue;
    }
    g.globalAlpha = block.alpha;
    g.fillStyle = fill(block.heat);
    g.beginPath();
    g.roundRect(block.x, block.y, block.width, block.height, block.width > 7 ? [3, 3, 0, 0] : 0);
    g.fill();
    if (block.width > 4) g.stroke();
  }
  g.globalAlpha = 1;
  for (const { block, height, heat, n } of columns.values()) {
    g.fillStyle = fill(heat / n);
    const bottom = block.y + block.height;
    g.fillRect(Math.round(block.x / NARROW) * NARROW, bottom - height, NARROW, height);
  }
  g.restore();
}

/** A chosen or focused block. */
export function paintRing(g: CanvasRenderingContext2D, block: Block, color: string, width: number): void {
  g.strokeStyle = color;
  g.lineWidth = width;
  g.beginPath();
  g.roundRect(block.x - 2, block.y - 2, Math.max(block.width, 2) + 4, block.height + 4, 4);
  g.stroke();
}
