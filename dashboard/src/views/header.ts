// The head of the page: is it alive, how fast, how well cached, how full, and does anything hold writes back.
import { h, s, setText, setValue, setWidth } from "../dom.ts";
import { bytes, count, duration, micros, percent, UNKNOWN } from "../format.ts";
import type { Connection, Store } from "../store.ts";
import { currentChoice, nextChoice } from "../theme.ts";

const HIT_WINDOW_S = 10;
const SPARK_S = 60;
/** What the server says that has as many streams as it gives; a proxy whose server is gone has other words. */
const ENOUGH = "enough pages are listening";

function figure(id: string, label: string): { root: HTMLElement; value: HTMLElement; note: HTMLElement } {
  const value = h("b", { class: "num", "data-kpi": id }, UNKNOWN);
  const note = h("span", { class: "note num" });
  return { root: h("div", { class: `kpi kpi-${id}` }, h("span", { class: "label" }, label), value, note), value, note };
}

export function header(store: Store): HTMLElement {
  const word = h("span", { role: "status" }, "connecting");
  // Changes every second, and is not read aloud each time.
  const since = h("span", { class: "since num" });
  const state = h("span", { class: "state", "data-state": "connecting" }, word, since);
  const theme_button = h("button", { class: "theme", type: "button" });
  const showChoice = () => {
    setText(theme_button, { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[currentChoice()]);
    theme_button.setAttribute("aria-label", `Theme: ${currentChoice()}. Change`);
  };
  theme_button.addEventListener("click", () => {
    nextChoice();
    showChoice();
  });
  showChoice();

  const throughput = figure("ops_per_s", "throughput");
  const line = s("path", { class: "spark-line" });
  const area = s("path", { class: "spark-area" });
  throughput.root.append(s("svg", { class: "spark", viewBox: "0 0 120 30", preserveAspectRatio: "none", "aria-hidden": "true" }, area, line));
  const read = figure("read_p99", "read p99");
  const write = figure("write_p99", "write p99");
  const hits = figure("hit_rate", "block cache hits");
  const memory = figure("memory", "memory");
  const bar = h("span", { class: "bar-fill" });
  memory.root.append(h("span", { class: "bar", "aria-hidden": "true" }, bar));
  const stall = figure("stall", "stalls");

  const root = h("header", { class: "top" },
    h("div", { class: "brand" },
      s("svg", { class: "logo", viewBox: "0 0 32 32", "aria-hidden": "true" },
        s("path", { d: "M11 6h10v5.5H11z", class: "logo-a" }), s("path", { d: "M7.5 13h17v5.5h-17z", class: "logo-b" }), s("path", { d: "M4 20h24v6H4z", class: "logo-c" })),
      h("h1", {}, "Terrace"), state, theme_button),
    h("div", { class: "kpis" }, throughput.root, read.root, write.root, hits.root, memory.root, stall.root));

  const spark = (): void => {
    const [, reads, writes] = store.series.window(SPARK_S, ["reads_per_s", "writes_per_s"]);
    const sums = reads!.map((value, at) => (value ?? 0) + (writes![at] ?? 0));
    if (sums.length < 2) return;
    const most = Math.max(...sums, 1);
    const d = sums.map((value, at) => `${at === 0 ? "M" : "L"}${((at / (sums.length - 1)) * 120).toFixed(1)} ${(28 - (value / most) * 25).toFixed(1)}`).join("");
    line.setAttribute("d", d);
    area.setAttribute("d", `${d}L120 30L0 30Z`);
  };

  store.on("live", ({ summary }) => {
    setValue(throughput.value, `${count(summary.ops_per_s)}/s`, summary.ops_per_s);
    setText(throughput.note, `${count(summary.reads_per_s)} reads, ${count(summary.writes_per_s)} writes`);
    setValue(read.value, micros(summary.latency_us.read.p99), summary.latency_us.read.p99);
    setText(read.note, `p50 ${micros(summary.latency_us.read.p50)}`);
    setValue(write.value, micros(summary.latency_us.write.p99), summary.latency_us.write.p99);
    setText(write.note, `p50 ${micros(summary.latency_us.write.p50)}`);
    const rate = store.series.hitRate(HIT_WINDOW_S);
    setValue(hits.value, percent(rate), rate);
    const found = summary.hits + summary.misses;
    setText(hits.note, found > 0 ? `keys found ${percent(summary.hits / found)}` : "");
    const { used_bytes, budget_bytes, rss_bytes } = summary.memory;
    setValue(memory.value, bytes(used_bytes), used_bytes);
    setText(memory.note, `of ${bytes(budget_bytes)}${rss_bytes === null ? "" : ` · process ${bytes(rss_bytes)}`}`);
    setWidth(bar, budget_bytes > 0 ? used_bytes / budget_bytes : 0);
    const { cause, is_stopped, seconds_total, count: times } = summary.stall;
    const { writes_refused } = summary;
    setValue(stall.value, writes_refused !== null ? "writes refused" : cause === null ? "none" : is_stopped ? "writes stopped" : "writes slowed", cause);
    setText(stall.note, writes_refused ?? cause ?? (times > 0 ? `${times} so far, ${duration(seconds_total)}` : "none so far"));
    stall.root.classList.toggle("alarm", writes_refused !== null || cause !== null);
    spark();
    document.title = `${count(summary.ops_per_s)}/s · Terrace`;
  });

  store.on("connection", (connection) => {
    const seconds = store.lost_since_ms === null ? 0 : Math.round((Date.now() - store.lost_since_ms) / 1000);
    const texts: Record<Connection, string> = {
      connecting: "connecting", live: "live", paused: "paused while nobody looks", lost: "connection lost, trying again",
      full: `${store.refusal === ENOUGH ? "too many pages are listening" : store.refusal}, trying again`, denied: `not allowed: ${store.refusal}`,
    };
    state.dataset.state = connection;
    setText(word, texts[connection]);
    setText(since, seconds > 1 ? `for ${duration(seconds)}` : "");
    document.documentElement.classList.toggle("stale", ["lost", "denied", "full"].includes(connection));
    if (connection === "lost" || connection === "full") document.title = "✕ Terrace";
    if (connection === "paused") document.title = "Terrace";
  });
  return root;
}
