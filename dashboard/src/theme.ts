// Light or dark: what the system says, unless the reader chose. The choice stays in this browser.

export type Choice = "auto" | "light" | "dark";
const NAME = "terrace-theme";
const CHOICES: Choice[] = ["auto", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners: (() => void)[] = [];
let choice: Choice = stored();

function stored(): Choice {
  try {
    const kept = localStorage.getItem(NAME);
    return CHOICES.includes(kept as Choice) ? (kept as Choice) : "auto";
  } catch {
    return "auto"; // Storage may be forbidden; the page works without.
  }
}

function apply(): void {
  document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener();
}

export function theme(): "light" | "dark" {
  if (choice !== "auto") return choice;
  return system.matches ? "dark" : "light";
}

export function currentChoice(): Choice {
  return choice;
}

export function nextChoice(): Choice {
  choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length]!;
  try {
    localStorage.setItem(NAME, choice);
  } catch {
    // As above.
  }
  apply();
  return choice;
}

export function onTheme(listener: () => void): void {
  listeners.push(listener);
}

/** A colour of app.css by the name of its variable. */
export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const calm = matchMedia("(prefers-reduced-motion: reduce)");

system.addEventListener("change", apply);
apply();
