// The keys read and written most; a click explains one.
import type { HotKey, HotKeys } from "../api.ts";
import { get, poll } from "../client.ts";
import { card, h, replace, setText, setWidth, whileVisible } from "../dom.ts";
import { count, isWhole, middle } from "../format.ts";
import type { Store } from "../store.ts";
import type { Explain } from "./explain.ts";

const SHOWN = 10;

export function hotKeys(store: Store, explain: Explain): HTMLElement {
  const about = h("span", { class: "muted" });
  const { root, body } = card("keys", "Top keys", about);
  const read = h("ol", { class: "top-keys" });
  const write = h("ol", { class: "top-keys writes" });
  body.append(h("div", { class: "two" }, h("div", {}, h("h3", {}, "read"), read), h("div", {}, h("h3", {}, "written"), write)));
  let visible = false;

  const list = (node: HTMLElement, keys: HotKey[]): void => {
    const most = keys[0]?.per_s ?? 1;
    // The list is rebuilt while someone may be going through it with the keyboard: focus stays in place.
    const focus = [...node.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    replace(node, ...keys.slice(0, SHOWN).map((hot) => {
      const bar = h("span", { class: "bar-fill" });
      setWidth(bar, hot.per_s / most);
      const what = isWhole(hot.key) ? "Explain" : "Too long to be explained here";
      const button = h("button", {
        type: "button", title: `${hot.key.text}\ndatabase ${hot.db}, at most ${count(hot.error_per_s)}/s too high. ${what}`,
        disabled: !isWhole(hot.key), onclick: () => explain(hot.db, hot.key),
      }, h("span", { class: "key-text" }, hot.db === 0 ? "" : `${hot.db}│`, middle(hot.key.text, 34)), h("span", { class: "num" }, `${count(hot.per_s)}/s`));
      return h("li", {}, bar, button);
    }));
    if (keys.length === 0) replace(node, h("li", { class: "muted" }, "none yet"));
    if (focus >= 0) node.querySelectorAll("button")[focus]?.focus({ preventScroll: true });
  };

  const now = poll(store, 2000, () => visible, async () => {
    const hot = await get<HotKeys>("hotkeys");
    setText(about, hot.sampled_one_in > 1 ? `sampled, one in ${hot.sampled_one_in}` : "");
    list(read, hot.read);
    list(write, hot.write);
  });
  whileVisible(root, (is) => {
    visible = is;
    if (is) now();
  });
  return root;
}
