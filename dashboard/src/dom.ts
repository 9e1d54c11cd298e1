// Elements without a framework: `h` for HTML, `s` for SVG, and changes only where something changed.

type Child = Node | string | number | null | false | undefined;
type Props = Record<string, unknown>;

function apply(node: Element, props: Props): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") {
      node.addEventListener(name.slice(2), value as EventListener);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

export function h<T extends keyof HTMLElementTagNameMap>(tag: T, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[T] {
  const node = document.createElement(tag);
  apply(node, props);
  append(node, children);
  return node;
}

export function s<T extends keyof SVGElementTagNameMap>(tag: T, props: Props = {}, ...children: Child[]): SVGElementTagNameMap[T] {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(node, props);
  append(node, children);
  return node;
}

function append(node: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/** Sets the text only if it is another: no layout for what stays. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows `value` as `text` and keeps the exact value beside it, for tests and for the curious. */
export function setValue(node: HTMLElement, text: string, value: number | string | null): void {
  setText(node, text);
  const exact = value === null ? "" : String(value);
  if (node.dataset.value !== exact) node.dataset.value = exact;
}

export function setWidth(node: HTMLElement, share: number): void {
  node.style.width = `${(Math.min(1, Math.max(0, share)) * 100).toFixed(2)}%`;
}

export function replace(node: Element, ...children: Child[]): void {
  node.textContent = "";
  append(node, children);
}

/** A card of the page: a labelled region with a heading, an aside in its head line, and a body. */
export function card(id: string, title: string, aside: Child = null): { root: HTMLElement; body: HTMLElement } {
  const body = h("div", { class: "card-body" });
  const root = h("section", { class: `card card-${id}`, id, "aria-labelledby": `${id}-title` },
    h("header", { class: "card-head" }, h("h2", { id: `${id}-title` }, title), h("div", { class: "card-aside" }, aside)),
    body);
  return { root, body };
}

/** Calls `changed` with whether the element is (nearly) on the screen. */
export function whileVisible(node: Element, changed: (visible: boolean) => void): void {
  new IntersectionObserver((entries) => changed(entries.at(-1)?.isIntersecting ?? true), { rootMargin: "120px" }).observe(node);
}

/** Calls `resized` with the width in CSS pixels, at once and whenever it changes. */
export function onWidth(node: Element, resized: (width: number) => void): void {
  let before = 0;
  new ResizeObserver((entries) => {
    const width = Math.round(entries.at(-1)?.contentRect.width ?? 0);
    if (width === before || width === 0) return;
    before = width;
    resized(width);
  }).observe(node);
}

/** Sizes a canvas for the screen's pixels; draws in CSS pixels afterwards. */
export function fitCanvas(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (context === null) throw new Error("this browser draws no canvas");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
