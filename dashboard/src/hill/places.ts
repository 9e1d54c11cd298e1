// Reads the names of places in an explanation: "L3 000123.sst filter", "memtable", … Pure.

export interface Place {
  kind: "memory" | "file" | "log" | "other";
  level: number | null;
  file: number | null;
  /** "filter", "model", "block", …; empty for places without parts. */
  part: string;
  /** The place without its part. */
  name: string;
}

export function placeOf(text: string): Place {
  const file = /^L(\d+)\s+(\d+)\.sst\b\s*(.*)$/.exec(text);
  if (file !== null) {
    return { kind: "file", level: Number(file[1]), file: Number(file[2]), part: file[3]!, name: `L${file[1]} ${file[2]}.sst` };
  }
  const level = /^L(\d+)\b\s*(.*)$/.exec(text);
  if (level !== null) return { kind: "other", level: Number(level[1]), file: null, part: level[2]!, name: `L${level[1]}` };
  if (text.includes("memtable")) return { kind: "memory", level: null, file: null, part: "", name: text };
  if (/\b(log|value)\b/.test(text)) return { kind: "log", level: null, file: null, part: "", name: text };
  return { kind: "other", level: null, file: null, part: "", name: text };
}
