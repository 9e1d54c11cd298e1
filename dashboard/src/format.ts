// Numbers for people: three digits that matter, units that fit, "–" for what is not known. Pure.
import type { FileShape, Key } from "./api.ts";

export const UNKNOWN = "–";
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNT_UNITS = ["", "k", "M", "G", "T"];

/** Three significant digits, without trailing zeros after the point. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return trim(value.toFixed(1));
  if (size >= 0.9995) return trim(value.toFixed(2));
  if (size < 0.0005) return "0";
  return trim(value.toFixed(3));
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function scaled(value: number, base: number, units: string[]): [number, string] {
  let at = 0;
  let rest = value;
  // 999.6 would be shown as 1000: it belongs to the next unit.
  while (Math.abs(rest) >= base - 0.5 && at + 1 < units.length) {
    rest /= base;
    at++;
  }
  return [rest, units[at]!];
}

export function bytes(value: number | null): string {
  if (value === null) return UNKNOWN;
  const [rest, unit] = scaled(value, 1024, BYTE_UNITS);
  return `${digits(rest)} ${unit}`;
}

export function count(value: number | null): string {
  if (value === null) return UNKNOWN;
  const [rest, unit] = scaled(value, 1000, COUNT_UNITS);
  return digits(unit === "" && Number.isInteger(value) ? value : rest) + unit;
}

export function ratio(value: number | null): string {
  return value === null ? UNKNOWN : digits(value);
}

export function percent(share: number | null): string {
  if (share === null) return UNKNOWN;
  const value = share * 100;
  // 99.97 % is not 100 %: a hit rate that rounds up would hide the misses.
  if (value > 99.9 && value < 100) return "99.9+ %";
  return `${value >= 99.95 ? value.toFixed(0) : trim(value.toFixed(1))} %`;
}

export function micros(value: number | null): string {
  if (value === null) return UNKNOWN;
  if (value < 999.5) return `${digits(value)} µs`;
  if (value < 999_500) return `${digits(value / 1000)} ms`;
  return `${digits(value / 1e6)} s`;
}

export function nanos(value: number): string {
  return value < 999.5 ? `${digits(value)} ns` : micros(value / 1000);
}

/** A length of time in seconds. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${digits(seconds)} s`;
  const parts: [number, string][] = [[Math.floor(seconds / 86400), "d"], [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"], [Math.floor(seconds) % 60, "s"]];
  const first = parts.findIndex(([n]) => n > 0);
  return parts.slice(first, first + 2).filter(([n]) => n > 0).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

export function ago(then_ms: number, now_ms: number): string {
  const seconds = Math.max(0, (now_ms - then_ms) / 1000);
  return seconds < 1.5 ? "now" : `${duration(Math.round(seconds)).split(" ").slice(0, 2).join(" ")} ago`;
}

export function clock(ms: number): string {
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** The clock of a moment; with the date where a day lies between it and now: without, it is the last such time. */
export function moment(ms: number, now_ms: number): string {
  if (Math.abs(now_ms - ms) < 86_400_000) return clock(ms);
  const date = new Date(ms);
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((n) => String(n).padStart(2, "0")).join("-");
  return `${day} ${clock(ms)}`;
}

/** "1 file", "2 files". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function fileName(number: number): string {
  return `${String(number).padStart(6, "0")}.sst`;
}

/** What to say of a file that stands for its neighbours, too; nothing of one alone. */
export function neighbours(file: FileShape): [string, string][] {
  return (file.file_count ?? 1) > 1 ? [["stands for", `${plural(file.file_count!, "file")} side by side, this the first`]] : [];
}

/** Whether `hex` has all bytes of the key. */
export function isWhole(key: Key): boolean {
  return key.hex.length === key.len * 2;
}

/** Families of the keyspace begin every key with the number of its database, behind a slot if the store has slots. */
const WITH_DB = new Set(["default", "collections", "elements"]);
/** Has slots as these, and no database in this place. */
const RECORDS = "cluster";
/** Keys that begin higher than slots do belong to the store, and have no slot. */
const LAST_SLOT = "3fff";

/** An engine's key for people: without its slot, the database apart, the middle of long keys left out. */
export function engineKey(key: Key, family: string, slot_bytes: number, most = 40): string {
  const has_db = WITH_DB.has(family);
  const has_slot = (has_db || family === RECORDS) && key.hex.slice(0, 2 * slot_bytes) <= LAST_SLOT;
  const slot = has_slot ? slot_bytes : 0;
  const db = has_db ? Number.parseInt(key.hex.slice(2 * slot, 2 * slot + 2), 16) : Number.NaN;
  const cut = middle(behind(key.text, Number.isNaN(db) ? slot : slot + 1), most);
  return Number.isNaN(db) || db === 0 ? cut : `${db}│${cut}`;
}

/** `text` without its first bytes: each is printable ASCII, a doubled backslash, or `\xNN`. */
function behind(text: string, bytes: number): string {
  let rest = text;
  for (let n = 0; n < bytes; n++) rest = rest.replace(/^(\\x[0-9a-f]{2}|\\\\|[\s\S])/i, "");
  return rest;
}

/** At most `most` characters of `text`, its ends: half a surrogate pair is no character. */
export function middle(text: string, most: number): string {
  const all = [...text];
  if (all.length <= most) return text;
  const head = Math.ceil((most - 1) * 0.6);
  return `${all.slice(0, head).join("")}…${all.slice(all.length - (most - 1 - head)).join("")}`;
}
