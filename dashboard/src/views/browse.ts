// A browser of keys: those with a prefix, in order, with their types, and what is under the chosen one.
import type { Key, KeyList, KeyRow, KeyValue } from "../api.ts";
import { get, Refused } from "../client.ts";
import { card, h, replace, setText } from "../dom.ts";
import { bytes, count, duration, isWhole, middle, plural } from "../format.ts";
import type { Store } from "../store.ts";
import type { Explain } from "./explain.ts";

/** Keys that are listed at most: a longer prefix finds what is behind them. */
const MOST_KEYS = 1000;
const COLUMNS: Record<string, string[]> = { hash: ["field", "value"], zset: ["member", "score"], set: ["member"], list: ["#", "value"] };
const UNITS: Record<string, string> = { hash: "field", set: "member", zset: "member", list: "element" };

type Query = Record<string, string | number>;

function problem(error: unknown): string {
  return error instanceof Refused ? error.message : "the server does not answer";
}

export function browseCard(store: Store, explain: Explain): HTMLElement {
  const about = h("span", { class: "muted", role: "status" });
  const { root, body } = card("browse", "Keys", about);
  const db = h("input", { type: "number", min: "0", max: "127", value: "0", id: "browse-db", inputmode: "numeric", "aria-label": "Database of the keys" });
  const prefix = h("input", { type: "text", id: "browse-prefix", placeholder: "prefix; nothing lists all keys", autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-label": "Prefix" });
  const form = h("form", { class: "explain-form" }, h("label", { class: "db" }, h("span", {}, "db"), db), prefix, h("button", { type: "submit" }, "List"));
  const list = h("ul", { class: "browse-keys", "aria-label": "Keys with this prefix" });
  const more = h("button", { type: "button", class: "browse-more", hidden: true }, "more");
  const shown = h("div", { class: "browse-value", "aria-live": "polite" });
  body.append(form, h("div", { class: "browse" }, h("div", {}, list, more), shown));
  /** The query of the next page of what is listed; `null`: there is none. */
  let next: Query | null = null;
  // What was asked for last: the list, and the value.
  let [listing, opening] = [0, 0];

  const open = async (db: number, row: KeyRow, button: HTMLElement): Promise<void> => {
    const mine = ++opening;
    for (const other of list.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
    button.setAttribute("aria-current", "true");
    try {
      const value = await get<KeyValue>("value", { db, hex: row.key.hex });
      if (mine === opening) replace(shown, ...picture(value, store, explain));
    } catch (error) {
      if (mine === opening) replace(shown, h("p", { class: "bad" }, `Could not read it: ${problem(error)}.`));
    }
  };
  const item = (db: number, row: KeyRow): HTMLElement => {
    const button = h("button", {
      type: "button", title: isWhole(row.key) ? row.key.text : "This key is too long to be opened here.", disabled: !isWhole(row.key),
      onclick: () => void open(db, row, button),
    }, h("span", { class: "type-tag" }, row.type), h("span", { class: "key-text" }, middle(row.key.text, 60)));
    return h("li", {}, button);
  };
  const showNext = (query: Query | null): void => {
    next = query;
    more.hidden = query === null;
  };
  const load = async (query: Query): Promise<void> => {
    const mine = ++listing;
    const is_first = query.after === undefined;
    if (is_first) opening++;
    try {
      const page = await get<KeyList>("keys", query);
      if (mine !== listing) return;
      if (is_first) replace(list);
      list.append(...page.keys.map((row) => item(page.db, row)));
      const listed = list.children.length;
      showNext(page.next !== null && listed < MOST_KEYS ? { ...query, after: page.next } : null);
      setText(about, listed === 0 && !page.has_more ? "no key begins so" : `${plural(listed, "key")}${page.has_more ? ", and more" : ""}`);
    } catch (error) {
      if (mine !== listing) return;
      // What is listed is of another prefix or database.
      if (is_first) replace(list);
      setText(about, `Could not list: ${problem(error)}.`);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    replace(shown);
    showNext(null);
    void load({ db: Number(db.value) || 0, prefix: prefix.value });
  });
  more.addEventListener("click", () => {
    if (next === null) return;
    const first = list.children.length;
    // The button goes away with the last page: the keyboard goes on with the first new key.
    void load(next).then(() => list.children[first]?.querySelector("button")?.focus());
  });
  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll<HTMLButtonElement>("button:enabled")];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const places: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 };
    const to = places[event.key];
    if (to === undefined) return;
    event.preventDefault();
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)]?.focus();
  });
  return root;
}

function picture(value: KeyValue, store: Store, explain: Explain): HTMLElement[] {
  const { key, type, size, text, elements } = value;
  const name = h("h3", { class: "mono" }, middle(key.text, 120));
  if (type === null) return [name, h("p", { class: "muted" }, "It is not there any more.")];
  const now = store.live?.summary.now_ms ?? Date.now();
  const what = `${type}, ${size === null ? "compressed" : type === "string" ? bytes(size) : plural(size, UNITS[type] ?? "element")}`;
  const expires = value.expires_at_ms === null ? "" : `, expires in ${duration(Math.max(0, Math.round((value.expires_at_ms - now) / 1000)))}`;
  const follow = h("button", { type: "button", onclick: () => explain(value.db, key) }, "Follow this key");
  const head = [name, h("div", { class: "row" }, h("span", {}, what + expires), follow)];
  if (text !== null) return [...head, h("pre", { class: "value", tabindex: "0", "aria-label": "Value of the key" }, text.text + (isWhole(text) ? "" : " …"))];
  if (size === null) return [...head, h("p", { class: "muted" }, "It is too long to be shown here; how long it is shows only when it is read.")];
  if (type === "string") return [...head, h("p", { class: "muted" }, "It is too long to be shown here.")];
  const columns = COLUMNS[type] ?? ["name", "value"];
  const rows = elements.map((one, at) => {
    const cells = [type === "list" ? count(at) : shownText(one.name), type === "set" ? null : (one.score ?? shownText(one.value))];
    return h("tr", {}, ...cells.filter((cell) => cell !== null).map((cell) => h("td", { class: "mono" }, cell)));
  });
  const rest = size > elements.length ? h("p", { class: "muted" }, `The first ${elements.length} of ${count(size)}.`) : null;
  const table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Elements of the key" },
    h("table", {}, h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", {}, column)))), h("tbody", {}, ...rows)));
  return [...head, table, ...(rest === null ? [] : [rest])];
}

function shownText(key: Key | null): string {
  return key === null ? "" : key.text + (isWhole(key) ? "" : " …");
}
