// A command line for the make-believe store: a few commands that read, with replies of every kind.
import type { CommandAnswer, CommandReply } from "../src/api.ts";
import { value } from "./browse.ts";
import { keyOf } from "./keys.ts";

/** A command that does not only read. */
export class Forbidden extends Error {}

const WRITES = ["SET", "DEL", "FLUSHALL", "CONFIG", "KEYS"];

export function reply(type: CommandReply["type"], text: string | null, elements: CommandReply[] = [], size = elements.length): CommandReply {
  return { type, text: text === null ? null : keyOf(text), elements, size };
}

export function command(db: number, line: string): CommandAnswer {
  const [name = "", key = ""] = line.split(" ");
  const told = (of: CommandReply, is_cut = false): CommandAnswer => ({ db, reply: of, is_cut });
  const found = value(db, key);
  const bulk = (text: string): CommandReply => reply("string", text);
  switch (name.toUpperCase()) {
    case "GET": return told(found.text === null ? reply("null", null) : bulk(found.text.text));
    case "DBSIZE": return told(reply("integer", "780"));
    case "TYPE": return told(reply("simple", found.type ?? "none"));
    case "HGETALL": return told(reply("map", null, found.elements.slice(0, 2).flatMap((one) => [bulk(one.name!.text), bulk(one.value!.text)])));
    case "LRANGE": return told(reply("array", null, found.elements.map((one) => bulk(one.value!.text)), 340), true);
    default:
      if (WRITES.includes(name.toUpperCase())) throw new Forbidden(`${name.toUpperCase()} does not only read; use the Redis port, with redis-cli`);
      return told(reply("error", `ERR unknown command '${name}', with args beginning with: `));
  }
}
