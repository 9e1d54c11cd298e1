// The axis of keys: where a key is between 0 and 1, so that equal widths hold equal amounts of data.
// Key prefixes are shared by millions of keys; an axis by bytes would show one tower and a desert.
// Pure; keys are lower-case hex, whose order is the order of the bytes.
import type { FamilyShape } from "./api.ts";

export class KeyAxis {
  private constructor(private readonly keys: string[], private readonly places: Float64Array) {}

  static readonly EMPTY = new KeyAxis([], new Float64Array());

  /** Weighs the space between any two neighbouring file bounds by the bytes of the files over it. L0
   *  files are over everything and say little, so they count only where there are no others. */
  static of(family: FamilyShape): KeyAxis {
    const sorted = family.levels.slice(1).flatMap((level) => level.files ?? []);
    const files = sorted.length > 0 ? sorted : (family.levels[0]?.files ?? []);
    const all = family.levels.flatMap((level) => level.files ?? []);
    if (all.length === 0) return KeyAxis.EMPTY;
    const keys = [...new Set(all.flatMap((file) => [file.smallest.hex, file.largest.hex]))].sort();
    const rank = new Map(keys.map((key, at) => [key, at]));
    const change = new Float64Array(keys.length + 1);
    for (const file of files) {
      const from = rank.get(file.smallest.hex)!;
      const to = rank.get(file.largest.hex)!;
      if (to <= from) continue;
      const each = file.size_bytes / (to - from);
      change[from]! += each;
      change[to]! -= each;
    }
    const places = new Float64Array(keys.length);
    let weight = 0;
    let sum = 0;
    for (let at = 0; at + 1 < keys.length; at++) {
      weight += change[at]!;
      sum += Math.max(weight, 0);
      places[at + 1] = sum;
    }
    if (sum > 0) for (let at = 0; at < places.length; at++) places[at]! /= sum;
    return new KeyAxis(keys, places);
  }

  /** The place of any key; those outside the known bounds are at the ends. */
  at(hex: string): number {
    const { keys, places } = this;
    if (keys.length === 0) return 0.5;
    let low = 0;
    let high = keys.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (keys[mid]! <= hex) low = mid + 1;
      else high = mid;
    }
    if (low === 0) return 0;
    if (keys[low - 1] === hex || low === keys.length) return places[low - 1]!;
    return places[low - 1]! + (places[low]! - places[low - 1]!) * shareBetween(keys[low - 1]!, hex, keys[low]!);
  }
}

/** How far `key` is from `below` to `above`, by the bytes in which they begin to differ. */
export function shareBetween(below: string, key: string, above: string): number {
  let same = 0;
  while (same < below.length && same < above.length && below[same] === above[same]) same++;
  const number = (hex: string) => Number.parseInt(hex.slice(same, same + 12).padEnd(12, "0"), 16);
  const [low, at, high] = [number(below), number(key), number(above)];
  return high > low ? Math.min(1, Math.max(0, (at - low) / (high - low))) : 0.5;
}
