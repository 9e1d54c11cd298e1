// The scale of heat that all parts of the page share: colours of the theme, and the hottest file lately,
// which sinks slowly so that colours do not jump.
import { css, heatRamp, type Rgb } from "./color.ts";
import { h, setText } from "./dom.ts";
import { count } from "./format.ts";
import { onTheme, theme } from "./theme.ts";

let ramp: Rgb[] = heatRamp(theme());
onTheme(() => (ramp = heatRamp(theme())));

export function currentRamp(): Rgb[] {
  return ramp;
}

export class HottestLately {
  value = 0;
  /** One look at all heats; the old maximum loses a little each time. */
  see(heats: Iterable<number>): void {
    let most = 0;
    for (const heat of heats) most = Math.max(most, heat);
    this.value = Math.max(most, this.value * 0.97);
  }
}

/** The hottest filter partition lately: the map of all and the strip of one file share its scale. */
export const partitionHeat = new HottestLately();

/** A legend from cold to hot with three figures. */
export function heatLegend(unit: string): { root: HTMLElement; update(hottest: number): void } {
  const canvas = h("canvas", { class: "legend-bar", width: 128, height: 8, "aria-hidden": "true" });
  const most = h("span", { class: "num" }, "–");
  const root = h("div", { class: "legend", title: `colour: ${unit}, logarithmic` },
    h("span", {}, "cold"), canvas, h("span", {}, "hot "), most);
  const draw = () => {
    const g = canvas.getContext("2d");
    if (g === null) return;
    ramp.forEach((rgb, at) => {
      g.fillStyle = css(rgb);
      g.fillRect((at * canvas.width) / ramp.length, 0, canvas.width / ramp.length + 1, canvas.height);
    });
  };
  draw();
  onTheme(draw);
  return { root, update: (hottest) => setText(most, hottest > 0 ? `(${count(hottest)} ${unit})` : "") };
}
