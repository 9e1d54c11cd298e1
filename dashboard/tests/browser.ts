// A headless Chromium for the page tests and for screenshots.
import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const CANDIDATES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export async function launch(): Promise<Browser> {
  const path = CANDIDATES.find((one) => one !== undefined && existsSync(one));
  if (path === undefined) throw new Error("no Chromium: install the package `chromium`, or name one in CHROMIUM");
  return chromium.launch({
    executablePath: path,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
}
