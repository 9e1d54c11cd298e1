// A headless Chromium for the page tests and for screenshots, and the page in it.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import type { Live } from "../src/api.ts";

export const LAPTOP = { viewport: { width: 1440, height: 900 } };
export const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };
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

/** Nothing that is waited for takes longer, on whatever machine: a guard against hanging, not a bound. */
export const GUARD_MS = 120_000;

/** What the init script keeps: the last event as the page got it, and how many. */
export interface Recorded { last: Live | null; events: number }

/** The page as soon as it is live, and what is written to its console. */
export async function openPage(browser: Browser, options: BrowserContextOptions, url: string): Promise<{ page: Page; errors: string[] }> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(GUARD_MS);
  const errors: string[] = [];
  page.on("console", (message) => (message.type() === "error" || message.type() === "warning") && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.addInitScript(() => {
    const recorded: Recorded = { last: null, events: 0 };
    (window as unknown as { recorded: Recorded }).recorded = recorded;
    const listen = EventSource.prototype.addEventListener as (...all: unknown[]) => void;
    EventSource.prototype.addEventListener = function (this: EventSource, name: string, heard: (event: MessageEvent<string>) => void) {
      listen.call(this, name, (event: MessageEvent<string>) => {
        heard(event);
        recorded.last = JSON.parse(event.data) as Live;
        recorded.events++;
      });
    } as typeof EventSource.prototype.addEventListener;
  });
  await page.goto(url);
  await page.waitForSelector('.state[data-state="live"]');
  return { page, errors };
}

export async function eventually(what: string, holds: () => Promise<boolean>): Promise<void> {
  const end = Date.now() + GUARD_MS;
  while (!(await holds())) {
    if (Date.now() > end) assert.fail(`not within ${GUARD_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
