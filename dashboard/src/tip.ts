// The one tooltip of the page: follows the pointer, stays on the screen, hides with Escape.
import { h } from "./dom.ts";

const node = h("div", { class: "tip", role: "tooltip", hidden: true });

export function mountTip(): void {
  document.body.append(node);
  addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  addEventListener("scroll", hideTip, { passive: true });
}

/** Rows of name and value under a title, near a point of the window. */
export function showTip(x: number, y: number, title: string, rows: [string, string][]): void {
  node.textContent = "";
  node.append(h("strong", {}, title));
  const list = h("dl");
  for (const [name, value] of rows) list.append(h("dt", {}, name), h("dd", {}, value));
  node.append(list);
  node.hidden = false;
  const box = node.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth - 8 ? x - box.width - 14 : x + 16;
  const top = y + 14 + box.height > innerHeight - 8 ? y - box.height - 12 : y + 14;
  node.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
  node.style.top = `${Math.max(8, top)}px`;
}

export function hideTip(): void {
  node.hidden = true;
}
