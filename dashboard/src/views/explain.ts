// A key looked up step by step: every place asked, down the terraces, with its answer and its price.
import type { Explanation, ExplainStep, Key } from "../api.ts";
import { get, Refused } from "../client.ts";
import { card, h, replace } from "../dom.ts";
import { count, duration, isWhole, middle, nanos, plural } from "../format.ts";
import { placeOf } from "../hill/places.ts";
import type { Store } from "../store.ts";
import { calm } from "../theme.ts";

/** Follows a key of a database, if all of it is known. */
export type Explain = (db: number, key: Key) => void;

const SIGNS: Record<ExplainStep["outcome"], string> = { no: "○", maybe: "◐", found: "●", deleted: "✕", skip: "–" };
const WORDS: Record<ExplainStep["outcome"], string> = { no: "not here", maybe: "maybe", found: "found", deleted: "deleted", skip: "not asked" };

export function explainCard(store: Store): { root: HTMLElement; explain: Explain } {
  const { root, body } = card("explain", "Follow a key");
  const db = h("input", { type: "number", min: "0", max: "255", value: "0", id: "explain-db", inputmode: "numeric", "aria-label": "Database" });
  const key = h("input", { type: "text", id: "explain-key", placeholder: "key, as you would GET it", autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-label": "Key" });
  const clear = h("button", { type: "button", class: "quiet-button", hidden: true }, "clear");
  const form = h("form", { class: "explain-form" }, h("label", { class: "db" }, h("span", {}, "db"), db), key, h("button", { type: "submit" }, "Explain"), clear);
  const result = h("div", { class: "explain-result", "aria-live": "polite" }, hint());
  body.append(form, result);
  let ticket = 0;
  /** Chosen on another card: the field shows its text, which may be escaped; its bytes are what is asked for. */
  let chosen: Key | null = null;

  const run = async (query: Record<string, string | number>): Promise<void> => {
    const mine = ++ticket;
    root.classList.add("asking");
    try {
      const explanation = await get<Explanation>("explain", query);
      if (mine !== ticket) return;
      store.setExplanation(explanation);
      replace(result, ...picture(explanation, store));
      clear.hidden = false;
    } catch (error) {
      if (mine !== ticket) return;
      store.setExplanation(null);
      const text = error instanceof Refused ? error.message : "the server does not answer";
      replace(result, h("p", { class: "bad" }, `Could not explain: ${text}.`));
    } finally {
      if (mine === ticket) root.classList.remove("asking");
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (key.value === "") return key.focus();
    const number = Number(db.value) || 0;
    if (chosen !== null && key.value === chosen.text) void run({ db: number, hex: chosen.hex });
    else void run({ db: number, key: key.value });
  });
  clear.addEventListener("click", () => {
    // What is asked for at the moment does not come back.
    ticket++;
    root.classList.remove("asking");
    store.setExplanation(null);
    replace(result, hint());
    clear.hidden = true;
    key.focus();
  });
  const explain: Explain = (number, of) => {
    if (!isWhole(of)) return;
    chosen = of;
    db.value = String(number);
    key.value = of.text;
    void run({ db: number, hex: of.hex });
    root.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth", block: "nearest" });
  };
  return { root, explain };
}

function hint(): HTMLElement {
  return h("p", { class: "muted" }, "Every memtable, filter unit, model, block and log segment that a GET of the key would ask, in order, with what each answers. Choose one of the top keys, or type one.");
}

function picture(explanation: Explanation, store: Store): HTMLElement[] {
  const { found, steps, type } = explanation;
  const now = store.live?.summary.now_ms ?? Date.now();
  const verdict = found === null ? h("strong", { class: "verdict none" }, "not there") : h("strong", { class: "verdict" }, `${type ?? "value"}, ${plural(found.value.len, "byte")}`);
  const expires = found?.expires_at_ms == null ? "" : `, expires in ${duration(Math.max(0, Math.round((found.expires_at_ms - now) / 1000)))}`;
  const head = h("p", { class: "explain-head" }, h("code", {}, middle(explanation.key.text, 60)), " ", verdict, `${expires} · ${nanos(explanation.total_ns)} · ${plural(explanation.device_reads, "device read")} · ${plural(steps.length, "step")}`);
  const slowest = Math.max(...steps.map((step) => step.ns), 1);
  const list = h("ol", { class: "way" });
  const families = new Set(steps.map((step) => step.family)).size;
  let before = "";
  for (const step of steps) {
    const place = placeOf(step.place);
    const name = `${step.family} ${place.name}`;
    const first = name !== before;
    before = name;
    const price = h("span", { class: "bar-fill" });
    price.style.width = `${Math.max(2, (Math.log1p(step.ns) / Math.log1p(slowest)) * 100).toFixed(1)}%`;
    const item = h("li", { class: `way-step ${step.outcome}${first ? " first" : ""}`, "data-outcome": step.outcome },
      h("span", { class: "sign", role: "img", "aria-label": WORDS[step.outcome] }, SIGNS[step.outcome]),
      h("span", { class: "place" }, first ? placeNode(place, step, families > 1, store) : "", place.part === "" ? "" : h("span", { class: "part" }, place.part)),
      h("span", { class: "asked" }, h("span", { class: "muted" }, step.asked), h("span", { class: "answer" }, step.answer)),
      h("span", { class: "price" }, h("span", { class: "num" }, nanos(step.ns)), h("span", { class: "bar slim" }, price)),
      h("span", { class: "device num" }, step.device_reads > 0 ? `${count(step.device_reads)} ⛁` : ""));
    // Deeper levels stand further to the right, as the steps of the hill do.
    item.style.setProperty("--depth", String(place.level === null ? (place.kind === "log" ? 7 : 0) : place.level + 1));
    list.append(item);
  }
  const parts: HTMLElement[] = [head, list];
  if (explanation.memory !== null) parts.push(h("p", { class: "muted" }, explanation.memory));
  if (found !== null) parts.push(h("pre", { class: "value", tabindex: "0", "aria-label": "Value" }, found.value.text + (found.value.len * 2 > found.value.hex.length ? " …" : "")));
  return parts;
}

function placeNode(place: ReturnType<typeof placeOf>, step: ExplainStep, with_family: boolean, store: Store): HTMLElement {
  const text = with_family ? `${step.family}: ${place.name}` : place.name;
  if (place.file === null || step.family !== store.family()?.name) return h("span", { class: "place-name" }, text);
  return h("button", { type: "button", class: "place-name link", title: "Show this SST", onclick: () => store.select(place.file) }, text);
}
