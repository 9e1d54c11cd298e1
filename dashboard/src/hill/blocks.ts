// Blocks between two pictures: each eases to its new place, new ones grow out of the tread, old ones
// fade. With very many blocks they jump: nobody could follow.
import type { FamilyShape } from "../api.ts";
import type { Block } from "./geometry.ts";

export type MovingBlock = Block & { heat: number; alpha: number };
type Target = { block: Block; heat: number; alpha: number };

const MOST_MOVING = 1500;
/** Share of the way that is left after a millisecond. */
const EASE = 0.9925;

export class MovingBlocks {
  readonly shown = new Map<number, MovingBlock>();
  private targets = new Map<number, Target>();
  private settled = true;

  /** Sets where the blocks go; `jump` places them there at once. */
  aim(blocks: Block[], family: FamilyShape | null, jump: boolean): void {
    const heat = new Map((family?.levels ?? []).flatMap((level) => (level.files ?? []).map((file) => [file.number, file.heat] as const)));
    this.targets = new Map(blocks.map((block) => [block.number, { block, heat: heat.get(block.number) ?? 0, alpha: 1 }]));
    const still = jump || this.shown.size === 0 || blocks.length > MOST_MOVING;
    for (const [number, { block, heat: hot }] of this.targets) {
      const now = this.shown.get(number);
      if (still) this.shown.set(number, { ...block, heat: hot, alpha: 1 });
      else if (now === undefined) {
        this.shown.set(number, { ...block, y: block.y + block.height - 1, height: 1, heat: hot, alpha: 0.2 });
      } else now.heat = hot;
    }
    for (const number of [...this.shown.keys()]) {
      if (!this.targets.has(number) && still) this.shown.delete(number);
    }
    this.settled = still;
  }

  /** Moves everything on by `ms`; whether anything still moves. */
  advance(ms: number): boolean {
    if (this.settled) return false;
    const left = EASE ** Math.min(ms, 100);
    let moving = false;
    for (const [number, block] of this.shown) {
      const target = this.targets.get(number);
      const alpha = target === undefined ? 0 : 1;
      block.alpha = alpha + (block.alpha - alpha) * left;
      if (target === undefined) {
        moving = true;
        if (block.alpha < 0.04) this.shown.delete(number);
        continue;
      }
      for (const side of ["x", "y", "width", "height"] as const) {
        const goal = target.block[side];
        block[side] = goal + (block[side] - goal) * left;
        if (Math.abs(block[side] - goal) > 0.3) moving = true;
        else block[side] = goal;
      }
      block.level = target.block.level;
    }
    this.settled = !moving;
    return moving;
  }
}
