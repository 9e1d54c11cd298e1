// The levels of the hillside in words, for readers who do not see it. Pure.
import type { FamilyShape } from "../api.ts";
import { bytes, percent, plural } from "../format.ts";
import type { Hill } from "./geometry.ts";

/** Each step of the hill: its level, or the empty levels that share it. */
export function inWords(hill: Hill, family: FamilyShape | null): string {
  if (family === null) return "";
  return hill.steps.filter((step) => !step.is_hidden).map((step) => {
    const level = family.levels[step.level];
    if (level === undefined || level.file_count === 0) {
      const last = step.folded_to ?? step.level;
      return `${last > step.level ? `L${step.level} to L${last}` : `L${step.level}`}: empty`;
    }
    const full = level.target_bytes ? `, ${percent(level.size_bytes / level.target_bytes)} of its target` : "";
    return `L${step.level}: ${plural(level.file_count, "file")}, ${bytes(level.size_bytes)}${full}`;
  }).join("; ");
}
