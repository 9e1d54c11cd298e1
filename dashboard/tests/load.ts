// A `terrace serve` of its own with data in it, and clients that go on reading and writing.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "./resp.ts";

/** More data than memory: the tree has levels, and reads go to the device. */
const FLAGS = ["--maxmemory", "16mb", "--slowlog-log-slower-than", "2000"];
const USERS = 40_000;
const SESSIONS = 4_000;
const CLIENTS = 3;
/** Requests that a client sends at once, and how long it rests then. */
const AT_ONCE = 16;
const REST_MS = 12;

export interface Served { port: number; url: string; child: ChildProcess; dir: string }

/** Ports that are drawn: below those that the system gives to connections (from 32,768 on), above those of the Rust tests. */
const PORTS = { first: 30_000, count: 2_700 };
let drawn = process.pid;

/** Another port each time, on which nobody listens. Nobody is given it by the system before the server has it. */
async function freePort(): Promise<number> {
  for (let left = PORTS.count; left > 0; left--) {
    const port = PORTS.first + drawn++ % PORTS.count;
    if (!(await isTaken(port))) return port;
  }
  throw new Error("all ports for tests are taken");
}

function isTaken(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.on("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.on("error", () => resolve(false));
  });
}

/** Starts `program`, and waits until it is ready. */
export async function serve(program: string): Promise<Served> {
  const [port, http] = [await freePort(), await freePort()];
  const dir = mkdtempSync(join(tmpdir(), "terrace-page-"));
  const child = spawn(program, ["serve", "--bind", "127.0.0.1", "--port", String(port), "--http-port", String(http), "--dir", join(dir, "store"), ...FLAGS],
    { cwd: dir, stdio: ["ignore", "ignore", "inherit"] });
  const url = `http://127.0.0.1:${http}`;
  const end = Date.now() + 60_000;
  for (;;) {
    const is_ready = await fetch(`${url}/readyz`).then((answer) => answer.ok, () => false);
    if (is_ready) return { port, url, child, dir };
    if (child.exitCode !== null) throw new Error(`${program} has ended with ${child.exitCode}`);
    if (Date.now() > end) throw new Error(`${program} is not ready`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** SHUTDOWN; it must end well. */
export async function stop({ port, child, dir }: Served): Promise<void> {
  const ended = new Promise<number | null>((resolve) => child.exitCode === null ? child.on("exit", resolve) : resolve(child.exitCode));
  const client = await Client.to(port);
  void client.call("SHUTDOWN").catch(() => {});
  const late = setTimeout(() => child.kill("SIGKILL"), 60_000);
  const code = await ended;
  clearTimeout(late);
  rmSync(dir, { recursive: true, force: true });
  if (code !== 0) throw new Error(`the server has ended with ${code}`);
}

const below = (limit: number): number => Math.floor(Math.random() * limit);
/** Few of them often: the cube of an even number. */
const often = (limit: number): number => Math.floor(Math.random() ** 3 * limit);
const user = (n: number): string => `user:${String(n * 2_654_435_761 % USERS).padStart(6, "0")}`;
/** Does not compress to nothing: the tree should have some size. */
const text = (length: number): string => Array.from({ length: Math.ceil(length / 10) }, () => Math.random().toString(36).slice(2, 12).padEnd(10, "x")).join("").slice(0, length);

function request(): string[] {
  const dice = Math.random();
  if (dice < 0.5) return ["GET", user(often(USERS))];
  if (dice < 0.7) return ["SET", user(often(USERS)), text(200 + below(300))];
  if (dice < 0.8) return ["HSET", `session:${often(SESSIONS)}`, `field:${below(20)}`, text(80)];
  if (dice < 0.9) return ["HGETALL", `session:${often(SESSIONS)}`];
  if (dice < 0.95) return ["GET", `user:nobody:${below(1_000_000)}`];
  return ["ZINCRBY", "ranking", "1", user(often(500))];
}

/** Writes every user and session once. */
export async function fill(port: number): Promise<void> {
  const client = await Client.to(port);
  for (let n = 0; n < USERS; n += 500) {
    await client.pipe(Array.from({ length: 500 }, (_, at) => ["SET", user(n + at), text(200 + below(300))]));
  }
  for (let n = 0; n < SESSIONS; n += 500) {
    await client.pipe(Array.from({ length: 500 }, (_, at) => ["HSET", `session:${n + at}`, "field:0", text(80), "field:1", text(80)]));
  }
  client.close();
  await client.closed;
}

/** Clients that read and write until they are told to end. */
export async function load(port: number): Promise<{ end(): Promise<void> }> {
  let goes_on = true;
  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => Client.to(port)));
  const work = clients.map(async (client) => {
    while (goes_on) {
      await client.pipe(Array.from({ length: AT_ONCE }, request));
      await new Promise((resolve) => setTimeout(resolve, REST_MS));
    }
    client.close();
  });
  // What goes wrong is told at the end.
  const done = Promise.allSettled(work);
  return {
    async end() {
      goes_on = false;
      for (const one of await done) if (one.status === "rejected") throw one.reason;
    },
  };
}
