// Colours that the eye sees as evenly spaced: OKLCH (Ottosson, "A perceptual color space for image
// processing", 2020) to sRGB, and the scale for heat made in it. Pure.

export type Rgb = readonly [number, number, number];

/** Lightness 0..1, chroma 0..0.4, hue in degrees; out-of-gamut channels are clipped. */
export function oklch(l: number, c: number, hue: number): Rgb {
  const angle = (hue * Math.PI) / 180;
  const a = c * Math.cos(angle);
  const b = c * Math.sin(angle);
  const long = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const medium = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    channel(4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short),
    channel(-1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short),
    channel(-0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short),
  ];
}

function channel(linear: number): number {
  const x = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
}

/** Lightness by OKLab of an sRGB colour, for tests of evenness and contrast. */
export function lightness([r, g, b]: Rgb): number {
  const [lr, lg, lb] = [r, g, b].map((v) => {
    const x = v / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  const long = Math.cbrt(0.4122214708 * lr + 0.5363325363 * lg + 0.0514459929 * lb);
  const medium = Math.cbrt(0.2119034982 * lr + 0.6806995451 * lg + 0.1073969566 * lb);
  const short = Math.cbrt(0.0883024619 * lr + 0.2817188376 * lg + 0.6299787005 * lb);
  return 0.2104542553 * long + 0.793617785 * medium - 0.0040720468 * short;
}

/** Chroma and hue at evenly spaced places from cold to hot; lightness is linear between its two ends. */
interface Ramp {
  cold: number;
  hot: number;
  stops: readonly (readonly [chroma: number, hue: number])[];
}

/** By day heat darkens from pale leaf to deep clay; by night it glows from dark moss to lamplight. */
const RAMPS: Record<"light" | "dark", Ramp> = {
  light: { cold: 0.93, hot: 0.42, stops: [[0.035, 150], [0.1, 112], [0.135, 76], [0.165, 46], [0.15, 24]] },
  dark: { cold: 0.36, hot: 0.92, stops: [[0.035, 175], [0.085, 40], [0.13, 46], [0.145, 66], [0.12, 96]] },
};

export const RAMP_STEPS = 64;

/** `RAMP_STEPS` colours from cold to hot. */
export function heatRamp(theme: "light" | "dark"): Rgb[] {
  const { cold, hot, stops } = RAMPS[theme];
  return Array.from({ length: RAMP_STEPS }, (_, i) => {
    const t = i / (RAMP_STEPS - 1);
    const place = t * (stops.length - 1);
    const at = Math.min(stops.length - 2, Math.floor(place));
    const [c0, h0] = stops[at]!;
    const [c1, h1] = stops[at + 1]!;
    const turn = ((h1 - h0 + 540) % 360) - 180;
    const share = place - at;
    return oklch(cold + (hot - cold) * t, c0 + (c1 - c0) * share, h0 + turn * share);
  });
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

/** Where `heat` is on the scale, 0..1: logarithmic over three decades below `hottest`, 0 for none. */
export function heatShare(heat: number, hottest: number): number {
  if (heat <= 0 || hottest <= 0) return 0;
  const least = hottest / 1000;
  return Math.min(1, Math.log1p(heat / least) / Math.log1p(1000));
}
