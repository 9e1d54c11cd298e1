// The connection: streams, probes and requests, in a make-believe browser whose clock stands still.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { live } from "../mock/answers.ts";
import { Engine } from "../mock/engine.ts";
import { Clock, settle } from "./clock.ts";
import { Store } from "../src/store.ts";

/** A request that is under way. */
interface Asked {
  url: URL;
  signal: AbortSignal;
  answer(status: number, body: unknown): Promise<void>;
}

class FakeSource {
  static all: FakeSource[] = [];
  is_closed = false;
  onerror: () => void = () => undefined;
  private hear: (event: { data: string }) => void = () => undefined;

  constructor(readonly url: URL) {
    FakeSource.all.push(this);
  }

  addEventListener(_name: string, hear: (event: { data: string }) => void): void {
    this.hear = hear;
  }

  close(): void {
    this.is_closed = true;
  }

  /** An event comes. */
  live(): void {
    this.hear({ data: JSON.stringify(live(engine, [])) });
  }
}

const clock = new Clock();
clock.install();
const engine = new Engine("live");
const asked: Asked[] = [];
const heard = new Map<string, (() => void)[]>();
const addEventListener = (name: string, run: () => void): void => void heard.set(name, [...(heard.get(name) ?? []), run]);
const happens = (name: string): void => heard.get(name)?.forEach((run) => run());
const page = { baseURI: "http://me:secret@127.0.0.1:6380/", hidden: false, addEventListener };

function fakeFetch(url: URL, { signal }: { signal: AbortSignal }): Promise<Response> {
  if (url.username !== "" || url.password !== "") return Promise.reject(new TypeError("an address with a login"));
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
    asked.push({
      url, signal,
      async answer(status, body) {
        resolve(new Response(JSON.stringify(body), { status }));
        await settle();
      },
    });
  });
}

Object.assign(globalThis, { document: page, EventSource: FakeSource, addEventListener, fetch: fakeFetch });
const { Client, get, poll } = await import("../src/client.ts");

beforeEach(() => {
  clock.reset();
  heard.clear();
  page.hidden = false;
  asked.length = 0;
  FakeSource.all = [];
});

const asks = (end: string): Asked[] => asked.filter(({ url }) => url.pathname.endsWith(`/api/v1/${end}`));
const open = (): FakeSource[] => FakeSource.all.filter((source) => !source.is_closed);

function start(): Store {
  const store = new Store();
  new Client(store).start();
  return store;
}

/** A page that is live. */
function begun(): Store {
  const store = start();
  open()[0]!.live();
  assert.equal(store.connection, "live");
  return store;
}

/** Hides or shows the page. */
function turn(hidden: boolean): void {
  page.hidden = hidden;
  happens("visibilitychange");
}

test("a page that was opened with a login in its address asks without it", async () => {
  const summary = get<number>("summary", { a: 1 });
  assert.equal(asked[0]?.url.href, "http://127.0.0.1:6380/api/v1/summary?a=1");
  await asked[0]!.answer(200, 7);
  assert.equal(await summary, 7);
  start();
  assert.equal(FakeSource.all[0]!.url.href, "http://127.0.0.1:6380/api/v1/stream");
});

test("a request without an answer ends by itself, after half a minute if nothing else is said", async () => {
  for (const [limits, ms] of [[undefined, 30_000], [{ within_ms: 75_000 }, 75_000]] as const) {
    asked.length = 0;
    const answer = assert.rejects(get("keys", {}, limits), new RegExp(`no answer within ${ms / 1000} s`));
    await clock.pass(ms - 1);
    assert.equal(asked[0]!.signal.aborted, false);
    await clock.pass(1);
    await answer;
  }
});

test("a request ends when its caller says so", async () => {
  const control = new AbortController();
  const answer = assert.rejects(get("command", {}, { signal: control.signal }));
  control.abort();
  await answer;
  assert.ok(asked[0]!.signal.aborted);
  await assert.rejects(get("command", {}, { signal: control.signal }), "it was said before");
});

test("a lost connection ends the requests that are under way, and what is polled is asked for again", async () => {
  const store = begun();
  poll(store, 1000, () => true, async () => void (await get("hotkeys")));
  await clock.pass(1000);
  open()[0]!.live();
  await clock.pass(1000);
  assert.equal(asks("hotkeys").length, 1, "one at a time");
  const value = assert.rejects(get("value"), /the connection was lost/);
  open()[0]!.onerror();
  await value;
  assert.equal(store.connection, "lost");
  await clock.pass(500);
  await asks("stream")[0]!.answer(200, null);
  open()[0]!.live();
  await settle();
  assert.equal(store.connection, "live");
  assert.equal(asks("hotkeys").length, 2);
});

test("history is asked for when the stream has come back", async () => {
  begun();
  await settle();
  assert.equal(asks("history").length, 1);
  open()[0]!.onerror();
  await clock.pass(500);
  await asks("stream")[0]!.answer(200, null);
  open()[0]!.live();
  open()[0]!.live();
  await settle();
  assert.equal(asks("history").length, 2);
});

test("two probes at a time give one stream", async () => {
  const store = begun();
  open()[0]!.onerror();
  await clock.pass(500);
  happens("online");
  happens("online");
  assert.equal(asks("stream").length, 3);
  for (const probe of asks("stream")) await probe.answer(200, null);
  assert.equal(FakeSource.all.length, 2);
  assert.equal(open().length, 1);
  open()[0]!.live();
  assert.equal(store.connection, "live");
});

test("what a former stream brings is of no importance", async () => {
  const store = begun();
  const former = FakeSource.all[0]!;
  await clock.pass(6000);
  assert.equal(store.connection, "lost", "it was silent");
  assert.ok(former.is_closed);
  former.live();
  assert.equal(store.connection, "lost");
  await asks("stream").at(-1)!.answer(200, null);
  assert.equal(open().length, 1);
  former.onerror();
  assert.equal(open().length, 1);
});

test("a page that is hidden gives its stream back after some seconds, and comes back when it is shown", async () => {
  const store = begun();
  turn(true);
  await clock.pass(2000);
  turn(false);
  open()[0]!.live();
  await clock.pass(4000);
  assert.equal(open().length, 1, "a look at another page changes nothing");
  open()[0]!.live();
  turn(true);
  for (let second = 0; second < 6; second++) {
    open()[0]?.live();
    await clock.pass(1000);
  }
  assert.equal(open().length, 0);
  assert.equal(store.connection, "paused");
  const before = asked.length;
  happens("online");
  await clock.pass(3_600_000);
  assert.deepEqual([open().length, asked.length, store.connection], [0, before, "paused"]);
  turn(false);
  assert.equal(open().length, 1);
  assert.equal(store.connection, "connecting");
  open()[0]!.live();
  assert.equal(store.connection, "live");
});

test("a page that is opened in the background, or lost there, is given back, too", async () => {
  page.hidden = true;
  const store = start();
  await clock.pass(60_000);
  assert.deepEqual([open().length, store.connection], [0, "paused"]);
});

test("a stream that is refused because too many listen is asked for again after a pause", async () => {
  const store = begun();
  open()[0]!.onerror();
  await clock.pass(500);
  await asks("stream")[0]!.answer(503, { error: "enough pages are listening" });
  assert.deepEqual([store.connection, store.refusal, open().length], ["full", "enough pages are listening", 0]);
  await clock.pass(9000);
  assert.deepEqual([asks("stream").length, store.connection], [1, "full"]);
  await clock.pass(1000);
  assert.equal(asks("stream").length, 2);
  await asks("stream")[1]!.answer(200, null);
  assert.equal(open().length, 1);
  open()[0]!.live();
  assert.equal(store.connection, "live");
});

test("a login that is missing is said, and tried again", async () => {
  const store = start();
  open()[0]!.onerror();
  await clock.pass(500);
  await asks("stream")[0]!.answer(401, { error: "log in" });
  assert.deepEqual([store.connection, store.refusal], ["denied", "log in"]);
  await clock.pass(5000);
  assert.equal(asks("stream").length, 2);
});
