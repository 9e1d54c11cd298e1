// The card with what to do, the most urgent first.
import { type Advice, advise } from "../advice.ts";
import { card, h, replace } from "../dom.ts";
import type { Store } from "../store.ts";

/** Words that change every second cannot be read. */
const EVERY_MS = 3000;
const SIGNS: Record<Advice["urgency"], [string, string]> = { now: ["!", "now"], soon: ["→", "worth a look"], fine: ["✓", "fine"] };

export function adviceCard(store: Store): HTMLElement {
  const { root, body } = card("advice", "What to do");
  const list = h("ul", { class: "advices" }, h("li", { class: "muted" }, "looking …"));
  body.append(list);
  let shown_ms = 0;
  let urgent = "";
  store.on("live", (live) => {
    const now = Date.now();
    const all = advise(live, store.series);
    const state = all.map((one) => `${one.id} ${one.urgency}`).join();
    if (state === urgent && now - shown_ms < EVERY_MS) return;
    [shown_ms, urgent] = [now, state];
    replace(list, ...all.map(row));
  });
  return root;
}

function row({ id, urgency, text, numbers }: Advice): HTMLElement {
  const [sign, word] = SIGNS[urgency];
  return h("li", { class: `advice-row ${urgency}`, "data-advice": id },
    h("span", { class: "advice-sign", role: "img", "aria-label": word }, sign),
    h("div", {}, h("p", {}, text),
      numbers.length === 0 ? null : h("dl", { class: "advice-numbers" }, ...numbers.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value))))));
}
