// The connection to the server: one stream that comes back by itself, and answers asked for by views.
import type { ApiError, History, Live, Shape } from "./api.ts";
import { KEPT_S } from "./series-buffer.ts";
import { needsFiles, type Store } from "./store.ts";

const API = new URL("api/v1/", document.baseURI);
/** A stream that is silent for so long is lost: events come every second. */
const SILENT_MS = 4500;
const RETRY_MS = [500, 1000, 2000, 4000];
/** With thousands of files they are fetched apart, not more often than this. */
const FILES_EVERY_MS = 5000;

export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

/** GET of an endpoint; errors say what the server said. */
export async function get<T>(path: string, query: Record<string, string | number> = {}, signal?: AbortSignal): Promise<T> {
  const url = new URL(path, API);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
  const response = await fetch(url, { headers: { Accept: "application/json" }, signal: signal ?? null });
  if (!response.ok) {
    const body = (await response.json().catch(() => null)) as ApiError | null;
    throw new Refused(response.status, body?.error ?? `the server answered ${response.status}`);
  }
  return (await response.json()) as T;
}

export class Client {
  private source: EventSource | null = null;
  private heard = 0;
  private tries = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private files_asked = 0;
  private files_pending = false;

  constructor(private readonly store: Store) {}

  start(): void {
    this.connect();
    setInterval(() => this.watch(), 1000);
    addEventListener("online", () => this.reconnect());
  }

  private connect(): void {
    this.heard = Date.now();
    const source = new EventSource(new URL("stream", API));
    this.source = source;
    source.addEventListener("live", (event) => {
      this.heard = Date.now();
      const returned = this.store.connection !== "live";
      this.tries = 0;
      const live = JSON.parse((event as MessageEvent<string>).data) as Live;
      this.store.receive(live);
      if (returned) void this.loadHistory();
      if (needsFiles(live.shape)) void this.loadFiles(live.shape.epoch);
    });
    source.onerror = () => this.lose();
  }

  private lose(): void {
    this.source?.close();
    this.source = null;
    this.store.setConnection("lost");
    clearTimeout(this.retry);
    this.retry = setTimeout(() => void this.probe(), RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)]);
  }

  /** A stream does not say why it failed; a plain request does. */
  private async probe(): Promise<void> {
    try {
      await get("summary", {}, AbortSignal.timeout(3000));
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        this.store.setConnection("denied", error.message);
        this.retry = setTimeout(() => void this.probe(), 5000);
        return;
      }
      this.lose();
      return;
    }
    this.connect();
  }

  private reconnect(): void {
    if (this.source !== null) return;
    this.tries = 0;
    clearTimeout(this.retry);
    void this.probe();
  }

  private watch(): void {
    if (this.source !== null && Date.now() - this.heard > SILENT_MS) this.lose();
    else if (this.store.connection === "lost") this.store.setConnection("lost");
  }

  private async loadHistory(): Promise<void> {
    try {
      this.store.remember(await get<History>("history", { seconds: KEPT_S }));
    } catch {
      // Without it the charts begin empty.
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
    }
    this.files_pending = false;
  }
}

/** Calls `load` every `every_ms` while `wanted` says so and the connection is live. */
export function poll(store: Store, every_ms: number, wanted: () => boolean, load: () => Promise<void>): () => void {
  let running = false;
  const run = async () => {
    if (running || document.hidden || store.connection !== "live" || !wanted()) return;
    running = true;
    await load().catch(() => undefined);
    running = false;
  };
  setInterval(() => void run(), every_ms);
  store.on("connection", (connection) => connection === "live" && void run());
  return () => void run();
}
