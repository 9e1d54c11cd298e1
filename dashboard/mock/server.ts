// A stand-in for the server: the API of src/api.ts over a make-believe store, and crates/server/dashboard as the
// server would serve it, with the same Content-Security-Policy.
//
//   npm run mock -- [--port 6390] [--scenario live|empty|huge|stalled]
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { FinishedJob } from "../src/api.ts";
import * as answers from "./answers.ts";
import { keys, value } from "./browse.ts";
import { command, Forbidden } from "./command.ts";
import { cluster } from "./cluster.ts";
import { Engine, type Scenario } from "./engine.ts";
import { explain } from "./explain.ts";
import { Ring } from "./history.ts";

export const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const DIST = new URL("../../crates/server/dashboard/", import.meta.url);
const ASSETS: Record<string, string> = {
  "index.html": "text/html; charset=utf-8", "api.html": "text/html; charset=utf-8", "app.js": "text/javascript; charset=utf-8",
  "app.css": "text/css; charset=utf-8", "favicon.svg": "image/svg+xml",
};

export interface MockOptions {
  port?: number;
  scenario?: Scenario;
  /** Milliseconds between two `live` events. */
  tick_ms?: number;
  /** Seconds of history to begin with. */
  warm_s?: number;
  /** Keys begin with a slot, as in placement `slots`. */
  slots?: boolean;
}

export interface Mock {
  url: string;
  engine: Engine;
  ring: Ring;
  /** Pages that listen, and how many may. */
  streams: { count(): number; most: number };
  close(): Promise<void>;
}

class BadRequest extends Error {}

export async function startMock(options: MockOptions = {}): Promise<Mock> {
  const tick_ms = options.tick_ms ?? 1000;
  const engine = new Engine(options.scenario ?? "live", undefined, options.slots ?? false);
  const ring = new Ring();
  if (engine.scenario !== "empty") ring.marks = Ring.marksOfTheDay(answers.summary(engine).version);
  const streams = new Set<{ response: ServerResponse; finished: FinishedJob[] }>();
  const room = { count: () => streams.size, most: Number.POSITIVE_INFINITY };
  const warm = options.warm_s ?? 240;
  for (let second = warm; second > 0; second--) {
    engine.tick(1);
    ring.push({ ...answers.summary(engine), now_ms: Date.now() - second * 1000 });
  }
  engine.finished = [];
  const timer = setInterval(() => {
    engine.tick(tick_ms / 1000);
    ring.push(answers.summary(engine));
    const finished = engine.finished.splice(0);
    for (const stream of streams) {
      stream.response.write(`event: live\ndata: ${JSON.stringify(answers.live(engine, finished.slice(0, 64)))}\n\n`);
    }
  }, tick_ms);

  const api = (path: string, query: URLSearchParams): unknown => {
    const number = (name: string) => (query.has(name) ? Number(query.get(name)) : null);
    switch (path) {
      case "summary": return answers.summary(engine);
      case "shape": return answers.shape(engine, true);
      case "jobs": return answers.jobs(engine);
      case "memory": return answers.memory(engine);
      case "live": return answers.live(engine, []);
      case "history": return ring.history(number("seconds") ?? 600);
      case "filters": return answers.filters(engine, query.get("family") ?? "default", number("file"));
      case "model": return answers.model(engine, number("file") ?? 0);
      case "explain": {
        const hex = query.get("hex");
        const name = hex === null ? query.get("key") : Buffer.from(hex, "hex").toString("utf8");
        if (name === null || name === "") throw new BadRequest("key or hex is missing");
        return explain(engine, number("db") ?? 0, name);
      }
      case "keys": {
        const prefix = query.get("hex") === null ? (query.get("prefix") ?? "") : Buffer.from(query.get("hex")!, "hex").toString("utf8");
        const after = query.get("after");
        return keys(engine, number("db") ?? 0, prefix, after === null ? null : Buffer.from(after, "hex").toString("utf8"));
      }
      case "value": {
        const hex = query.get("hex");
        const name = hex === null ? query.get("key") : Buffer.from(hex, "hex").toString("utf8");
        if (name === null) throw new BadRequest("either key or hex is needed");
        return value(number("db") ?? 0, name);
      }
      case "command": return command(number("db") ?? 0, query.get("line") ?? "");
      case "hotkeys": return answers.hotkeys(engine);
      case "slowlog": return answers.slowlog(engine);
      case "latency": return answers.latency(engine);
      case "config": return answers.config();
      case "cluster": return cluster(engine);
      default: return undefined;
    }
  };

  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    const url = new URL(request.url ?? "/", "http://mock");
    response.setHeader("Content-Security-Policy", CSP);
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Cache-Control", "no-store");
    const json = (status: number, body: unknown) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(body));
    };
    if (url.pathname === "/api/v1/stream") {
      if (streams.size >= room.most) return json(503, { error: "enough pages are listening" });
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      const stream = { response, finished: [] };
      streams.add(stream);
      response.on("close", () => streams.delete(stream));
      response.write(`event: live\ndata: ${JSON.stringify(answers.live(engine, []))}\n\n`);
      return;
    }
    if (url.pathname.startsWith("/api/v1/")) {
      try {
        const body = api(url.pathname.slice("/api/v1/".length), url.searchParams);
        if (body === undefined) json(404, { error: "no such endpoint" });
        else json(200, body);
      } catch (error) {
        json(error instanceof BadRequest ? 400 : error instanceof Forbidden ? 403 : 500, { error: String((error as Error).message) });
      }
      return;
    }
    const name = url.pathname === "/" ? "index.html" : url.pathname.slice(1);
    const type = ASSETS[name];
    if (type === undefined) return json(404, { error: "no such page" });
    response.writeHead(200, { "Content-Type": type });
    response.end(readFileSync(new URL(name, DIST)));
  };

  const server: Server = createServer(handle);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, "127.0.0.1", resolve);
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = async () => {
    clearInterval(timer);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { url, engine, ring, streams: room, close };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = (name: string) => {
    const at = process.argv.indexOf(`--${name}`);
    return at < 0 ? undefined : process.argv[at + 1];
  };
  const mock = await startMock({ port: Number(option("port") ?? 6390), scenario: (option("scenario") ?? "live") as Scenario });
  console.log(`mock store at ${mock.url}`);
}
