// The page beside INFO of the same server: TERRACE_URL says where the page is, TERRACE_PORT where the
// protocol. `real.ts` starts both under a load, and runs this.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import type { Shape } from "../src/api.ts";
import { eventually, GUARD_MS, launch } from "./browser.ts";
import { Client } from "./resp.ts";

const url = process.env.TERRACE_URL!;
let browser: Browser;
let client: Client;

before(async () => {
  [browser, client] = [await launch(), await Client.to(Number(process.env.TERRACE_PORT))];
});

after(async () => {
  client.close();
  await browser.close();
});

async function info(): Promise<Record<string, number>> {
  const lines = String(await client.call("INFO")).split("\r\n").filter((line) => line.includes(":"));
  const fields = Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
  const keys = /keys=(\d+)/.exec(fields.db0 ?? "")?.[1];
  return { clients: Number(fields.connected_clients), commands: Number(fields.total_commands_processed), keys: Number(keys),
    hits: Number(fields.keyspace_hits), misses: Number(fields.keyspace_misses) };
}

const value = async (page: Page, id: string): Promise<number> => Number(await page.locator(`[data-kpi="${id}"]`).getAttribute("data-value"));

async function newPage(): Promise<Page> {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(GUARD_MS);
  return page;
}

/** Waits until the page shows another number of commands: a new second has begun. */
async function nextSecond(page: Page): Promise<void> {
  const before = await value(page, "commands_total");
  await page.waitForFunction((before) => Number(document.querySelector<HTMLElement>('[data-kpi="commands_total"]')!.dataset.value) !== before, before, { timeout: GUARD_MS });
}

test("the numbers on the page are those of INFO", async () => {
  const page = await newPage();
  const errors: string[] = [];
  page.on("console", (message) => (message.type() === "error" || message.type() === "warning") && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(url);
  await page.waitForSelector('.state[data-state="live"]');
  const totals = new Set<number>();
  for (let look = 0; look < 4; look++) {
    await nextSecond(page);
    const before = await info();
    await nextSecond(page);
    // One event may have been sampled before `before`: the next one was not.
    await nextSecond(page);
    const [commands, clients, keys] = [await value(page, "commands_total"), await value(page, "connected_clients"), await value(page, "dbsize")];
    const now = await info();
    // The clients of the load may have had no turn since the last event.
    assert.ok(before.commands! < commands && commands <= now.commands!, `commands: ${before.commands} < ${commands} <= ${now.commands}`);
    assert.equal(clients, now.clients);
    // An estimate, which every flush and compaction under the load makes another one.
    const [least, most] = [Math.min(before.keys!, now.keys!), Math.max(before.keys!, now.keys!)];
    assert.ok(keys > 0.75 * least && keys < 1.25 * most, `keys: ${keys} on the page, ${least} to ${most} in INFO`);
    totals.add(commands);
  }
  assert.equal(totals.size, 4, "the page stands still under a load");
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("the store has what the page is for: levels, flushes and compactions", async () => {
  const shape = (await (await fetch(`${url}/api/v1/shape`)).json()) as Shape;
  const levels = shape.families.flatMap((family) => family.levels.map((level, at) => (level.file_count > 0 ? at : -1)));
  assert.ok(levels.some((level) => level > 0), `files are on levels ${levels.join(" ")}`);
  const page = await newPage();
  await page.goto(url);
  await page.waitForSelector('.state[data-state="live"]');
  assert.ok(!(await page.locator(".hill-empty").isVisible()));
  await eventually("a second with operations", async () => (await value(page, "ops_per_s")) > 0);
  await page.waitForSelector(".top-keys button");
  await page.context().close();
});
