// Fewer things than there are, for what would be too much to draw. Pure.

/** Indices of at most `most` things of `length`, evenly spread, with the first and the last among them. */
export function evenly(length: number, most: number): number[] {
  const shown = Math.min(length, most);
  if (shown < 2) return length > 0 ? [0] : [];
  return Array.from({ length: shown }, (_, at) => Math.round((at * (length - 1)) / (shown - 1)));
}
