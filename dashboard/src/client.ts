// The connection to the server: one stream that comes back by itself, and answers asked for by views.
import type { ApiError, History, Live, Shape } from "./api.ts";
import { KEPT_S } from "./series-buffer.ts";
import { needsFiles, type Store } from "./store.ts";

const API = new URL("api/v1/", document.baseURI);
// `fetch` takes no address with a login in it; the browser sends the one that it has by itself.
API.username = API.password = "";
/** A stream that is silent for so long is lost: events come every second. */
const SILENT_MS = 4500;
const RETRY_MS = [500, 1000, 2000, 4000];
/** Until the next try of a page that is not allowed, and of one that there is no room for. */
const DENIED_MS = 5000;
const FULL_MS = 10_000;
/** A page that is hidden for this long ends its stream: a browser has few connections to a server, for all of its pages. */
const HIDDEN_MS = 5000;
/** With thousands of files they are fetched apart, not more often than this. */
const FILES_EVERY_MS = 5000;
/** How long an answer may take. */
const ANSWER_MS = 30_000;

export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

export interface Limits {
  /** Ends the request. */
  signal?: AbortSignal;
  within_ms?: number;
}

/** Requests that are under way: a lost connection ends them. */
const outstanding = new Set<AbortController>();

/** GET of an endpoint; errors say what the server said. */
export function get<T>(path: string, query: Record<string, string | number> = {}, limits: Limits = {}): Promise<T> {
  return ask(path, query, limits, async (response) => (await response.json()) as T);
}

/** What `read` does not take of the answer is left with the server. */
async function ask<T>(path: string, query: Record<string, string | number>, { signal, within_ms = ANSWER_MS }: Limits, read: (response: Response) => Promise<T>): Promise<T> {
  const url = new URL(path, API);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
  const control = new AbortController();
  const cancel = (): void => control.abort(signal?.reason);
  const late = setTimeout(() => control.abort(new Error(`no answer within ${within_ms / 1000} s`)), within_ms);
  signal?.addEventListener("abort", cancel);
  outstanding.add(control);
  try {
    if (signal?.aborted) cancel();
    const response = await fetch(url, { headers: { Accept: "application/json" }, signal: control.signal });
    if (!response.ok) {
      const body = (await response.json().catch(() => null)) as ApiError | null;
      throw new Refused(response.status, body?.error ?? `the server answered ${response.status}`);
    }
    return await read(response);
  } finally {
    clearTimeout(late);
    signal?.removeEventListener("abort", cancel);
    outstanding.delete(control);
    control.abort();
  }
}

export class Client {
  private source: EventSource | null = null;
  /** Grows with every stream and probe: an older one is over, whatever it brings. */
  private turn = 0;
  private heard = 0;
  private tries = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private hiding: ReturnType<typeof setTimeout> | undefined;
  private files_asked = 0;
  private files_pending = false;

  constructor(private readonly store: Store) {}

  start(): void {
    this.connect();
    setInterval(() => this.watch(), 1000);
    addEventListener("online", () => this.reconnect());
    document.addEventListener("visibilitychange", () => this.showOrHide());
    this.showOrHide();
  }

  /** Ends the stream, and what would follow a probe. */
  private begin(): number {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
    return ++this.turn;
  }

  private connect(): void {
    this.begin();
    this.heard = Date.now();
    const source = new EventSource(new URL("stream", API));
    this.source = source;
    source.addEventListener("live", (event) => {
      if (source !== this.source) return;
      this.heard = Date.now();
      const returned = this.store.connection !== "live";
      this.tries = 0;
      const live = JSON.parse((event as MessageEvent<string>).data) as Live;
      this.store.receive(live);
      if (returned) void this.loadHistory();
      if (needsFiles(live.shape)) void this.loadFiles(live.shape.epoch);
    });
    source.onerror = () => {
      if (source === this.source) this.lose();
    };
  }

  private lose(): void {
    this.begin();
    for (const control of outstanding) control.abort(new Error("the connection was lost"));
    this.store.setConnection("lost");
    this.probeIn(RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)]!);
  }

  private probeIn(ms: number): void {
    clearTimeout(this.retry);
    this.retry = setTimeout(() => void this.probe(), ms);
  }

  /** A stream of the browser does not say why it failed; a plain request for it does. */
  private async probe(): Promise<void> {
    const turn = this.begin();
    const failure = await ask("stream", {}, { within_ms: SILENT_MS }, async () => null).catch((error: unknown) => error);
    if (turn !== this.turn) return;
    if (failure === null) return this.connect();
    const status = failure instanceof Refused ? failure.status : 0;
    if (status === 401 || status === 403) {
      this.store.setConnection("denied", (failure as Refused).message);
      this.probeIn(DENIED_MS);
    } else if (status === 503) {
      this.store.setConnection("full", (failure as Refused).message);
      this.probeIn(FULL_MS);
    } else this.lose();
  }

  private reconnect(): void {
    if (this.source !== null || this.store.connection === "paused") return;
    this.tries = 0;
    void this.probe();
  }

  private showOrHide(): void {
    clearTimeout(this.hiding);
    if (document.hidden) this.hiding = setTimeout(() => this.pause(), HIDDEN_MS);
    else if (this.store.connection === "paused") {
      this.tries = 0;
      this.store.setConnection("connecting");
      this.connect();
    }
  }

  private pause(): void {
    this.begin();
    this.store.setConnection("paused");
  }

  private watch(): void {
    if (this.source !== null && Date.now() - this.heard > SILENT_MS) this.lose();
    else if (this.store.connection === "lost") this.store.setConnection("lost");
  }

  private async loadHistory(): Promise<void> {
    try {
      this.store.remember(await get<History>("history", { seconds: KEPT_S }));
    } catch {
      // Without it the charts have a gap.
    }
  }

  private async loadFiles(epoch: number): Promise<void> {
    const changed = this.store.shape?.epoch !== epoch;
    const wait = changed ? FILES_EVERY_MS / 2 : FILES_EVERY_MS;
    if (this.files_pending || Date.now() - this.files_asked < wait) return;
    this.files_pending = true;
    this.files_asked = Date.now();
    try {
      this.store.setShape(await get<Shape>("shape"));
    } catch {
      // The next event asks again.
    } finally {
      this.files_pending = false;
    }
  }
}

/** Calls `load` every `every_ms` while `wanted` says so and the connection is live. */
export function poll(store: Store, every_ms: number, wanted: () => boolean, load: () => Promise<void>): () => void {
  let running = false;
  const run = async () => {
    if (running || document.hidden || store.connection !== "live" || !wanted()) return;
    running = true;
    try {
      await load();
    } catch {
      // The next time asks again.
    } finally {
      running = false;
    }
  };
  setInterval(() => void run(), every_ms);
  store.on("connection", (connection) => connection === "live" && void run());
  return () => void run();
}
