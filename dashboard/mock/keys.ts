// The mock's key space: a number in [0, 1) and the key that stands for it, in the same order, under a
// few prefixes of unequal share, as real stores have them.
import type { Key } from "../src/api.ts";

const SPACES: { prefix: string; from: number; digits: number }[] = [
  { prefix: "cart:", from: 0, digits: 8 },
  { prefix: "feed:", from: 0.12, digits: 10 },
  { prefix: "session:", from: 0.45, digits: 12 },
  { prefix: "user:", from: 0.6, digits: 9 },
];

const SLOTS = 16_384;

/** A key, with bytes in front of it if it is one of the engine. */
export function keyOf(text: string, prefix: number[] = []): Key {
  const whole = Buffer.concat([Buffer.from(prefix), Buffer.from(text, "utf8")]);
  return { text: prefix.map(escaped).join("") + text, hex: whole.subarray(0, 256).toString("hex"), len: whole.length };
}

function escaped(byte: number): string {
  if (byte === 0x5c) return "\\\\";
  return byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
}

/** The engine's key. Slots are in the order of places, as no hash has them. */
export function engineKeyOf(name: string, db: number, slots: boolean): Key {
  if (!slots) return keyOf(name, [db]);
  const slot = Math.floor(positionOf(name) * SLOTS);
  return keyOf(name, [slot >> 8, slot & 0xff, db]);
}

export function nameAt(position: number): string {
  const x = Math.min(Math.max(position, 0), 0.999999999);
  let at = 0;
  while (at + 1 < SPACES.length && x >= SPACES[at + 1]!.from) at++;
  const space = SPACES[at]!;
  const end = SPACES[at + 1]?.from ?? 1;
  const share = (x - space.from) / (end - space.from);
  return space.prefix + Math.floor(share * 10 ** space.digits).toString().padStart(space.digits, "0");
}

/** The inverse of `nameAt`, for any text; keys of no known prefix go to the nearest place. */
export function positionOf(name: string): number {
  let position = 0;
  SPACES.forEach((space, at) => {
    const end = SPACES[at + 1]?.from ?? 1;
    if (name.startsWith(space.prefix)) {
      const digits = name.slice(space.prefix.length).replace(/\D.*$/, "");
      const share = digits === "" ? 0 : Number(`0.${digits}`);
      position = space.from + share * (end - space.from);
    } else if (name > space.prefix && position < space.from) {
      position = end - 1e-9;
    }
  });
  return position;
}
