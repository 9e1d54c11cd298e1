// Command lines, and replies as redis-cli prints them in a terminal. Pure.
import type { CommandReply, Key } from "./api.ts";

const ESCAPES: Record<number, string> = { 0x5c: "\\\\", 0x22: '\\"', 0x0a: "\\n", 0x0d: "\\r", 0x09: "\\t", 0x07: "\\a", 0x08: "\\b" };

/** Bytes between quotes, so that the command line takes them back: what is not printable ASCII is escaped. */
export function quoted(key: Key): string {
  let out = '"';
  for (let at = 0; at < key.hex.length; at += 2) {
    const byte = parseInt(key.hex.slice(at, at + 2), 16);
    const printable = byte >= 0x20 && byte < 0x7f;
    out += ESCAPES[byte] ?? (printable ? String.fromCharCode(byte) : `\\x${key.hex.slice(at, at + 2)}`);
  }
  return `${out}"${more(key)}`;
}

/** A command line without what the server takes for blanks at its ends: others, such as U+00A0, are bytes of a key. */
export function trimmed(line: string): string {
  return line.replace(/^[ \t\n\f\r]+|[ \t\n\f\r]+$/g, "");
}

/** What is missing of the bytes of a string. */
function more(key: Key): string {
  const missing = key.len - key.hex.length / 2;
  return missing === 0 ? "" : ` … and ${missing} bytes more`;
}

/** The reply in lines; those of elements begin with `indent`, but for the first one. */
export function printed(reply: CommandReply, indent = ""): string[] {
  const { type, text, elements, size } = reply;
  const plain = text === null ? "" : text.text + more(text);
  switch (type) {
    case "string": return [text === null ? '""' : quoted(text)];
    case "error": return [`(error) ${plain}`];
    case "integer": return [`(integer) ${plain}`];
    case "double": return [`(double) ${plain}`];
    case "boolean": return [`(${plain})`];
    case "null": return ["(nil)"];
    case "simple": case "big_number": case "verbatim": return [plain];
    case "array": case "set": case "map": break;
  }
  const step = type === "map" ? 2 : 1;
  if (size === 0) return [`(empty ${type === "map" ? "hash" : type})`];
  const width = String(size / step).length;
  const sign = { array: ")", set: "~", map: "#" }[type];
  const lines: string[] = [];
  for (let at = 0; at < elements.length; at += step) {
    const number = `${String(at / step + 1).padStart(width)}${sign} `;
    const inner = indent + " ".repeat(number.length);
    const key = type === "map" ? `${printed(elements[at]!, inner).join("\n")} => ` : "";
    const value = elements[at + step - 1];
    const [first, ...rest] = value === undefined ? ["…"] : printed(value, inner);
    lines.push(`${at === 0 ? "" : indent}${number}${key}${first}`, ...rest);
  }
  const missing = (size - elements.length) / step;
  if (missing >= 1) lines.push(`${elements.length === 0 ? "" : indent}… and ${Math.floor(missing)} more`);
  return lines;
}
