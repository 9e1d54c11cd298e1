// The cards in a real browser against a mock that stands still: what they say, how they are read aloud, and that they can
// be seen in every form of the page.
//
// `UPDATE=1 npm test` writes what is read aloud to tests/aria/, to be looked at like code.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { MIB } from "../mock/engine.ts";
import { type Mock, type MockOptions, startMock } from "../mock/server.ts";
import { eventually, GUARD_MS, LAPTOP, launch, openPage, PHONE, type Recorded } from "./browser.ts";

const CARDS = ["terraces", "memory", "keys", "cluster", "advice", "debt", "explain", "series", "filters", "slow", "commands", "browse", "command"];
const ARIA = new URL("aria/", import.meta.url);
/** How often a card is looked at that is not yet as expected. */
const LOOKS = 20;
let browser: Browser;

before(async () => {
  browser = await launch();
});

after(() => browser.close());

/** A mock whose store does nothing more. */
async function still(options: MockOptions = {}): Promise<Mock> {
  const mock = await startMock({ warm_s: 120, ...options });
  mock.engine.tick = () => undefined;
  mock.engine.stall_cause = null;
  return mock;
}

const open = (mock: Mock, options: BrowserContextOptions = {}) => openPage(browser, { ...LAPTOP, ...options }, mock.url);
const events = (page: Page) => page.evaluate(() => (window as unknown as { recorded: Recorded }).recorded.events);
const text = async (at: Locator): Promise<string> => (await at.textContent()) ?? "";

/** Two more events: what the store is like now is shown. */
async function follow(page: Page): Promise<void> {
  const before = await events(page);
  await eventually("the next events", async () => (await events(page)) > before + 1);
}

test("a store that is stalled says so in the head, the advice, the charts and the debt, with its numbers", async (t) => {
  const mock = await startMock({ scenario: "stalled" });
  t.after(() => mock.close());
  assert.ok(mock.engine.stall_count > 0 && mock.engine.stall_seconds > 1, "its writes were held back by themselves");
  const { engine } = mock;
  engine.tick = () => undefined;
  const { page, errors } = await open(mock);
  const advice = page.locator('[data-advice="stall"]');
  engine.stall_cause = "memtables wait for their flush";
  engine.immutables = 3;
  await eventually("the advice", async () => (await text(advice)).includes("memtables hold"));
  assert.match(await text(advice), /Writes are slowed because memtables hold 64 MiB and 3 of them wait for a flush\..*32 MiB more would save up to 67 reads\/s\./);
  assert.match(await text(advice), /waiting3.*a MiB more in memtables2\.1 reads\/s/);
  assert.ok(await page.locator("[data-advice]").first().evaluate((row) => row.classList.contains("now")), "what is urgent stands first");
  assert.equal(await advice.getByRole("img").getAttribute("aria-label"), "now");
  assert.equal(await text(page.locator('[data-kpi="stall"]')), "writes slowed");
  assert.equal(await text(page.locator('[data-debt="memtables"]')), "3 memtables");
  await page.locator("#chart-stalls").scrollIntoViewIfNeeded();
  await eventually("the chart", async () => (await text(page.locator("#chart-stalls"))).includes("memtables wait for their flush"));
  // Too many files in L0, which the mock has by itself or is given.
  engine.stall_cause = "too many L0 files";
  const files = engine.files[0]!.length;
  await eventually("the next cause", async () => (await text(advice)).includes("L0 has"));
  assert.match(await text(advice), new RegExp(`Writes are slowed because L0 has ${files} files?: from 8 on writes are slowed, at 16 they stop\\.`));
  assert.equal(await page.locator('[data-debt="l0"]').getAttribute("data-value"), String(files));
  // Over: it is told as something of late.
  [engine.stall_cause, engine.immutables] = [null, 0];
  await eventually("it is over", async () => /^.?Writes were held back lately/.test(await text(advice)));
  assert.equal(await text(page.locator('[data-kpi="stall"]')), "none");
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("a store that refuses writes says so in the head and the advice", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { page, errors } = await open(mock);
  const head = page.locator(".kpi-stall");
  await eventually("the head", async () => (await text(page.locator('[data-kpi="stall"]'))) === "none");
  mock.engine.refused = "the disk is full";
  await eventually("it says so", async () => /writes refusedthe disk is full$/.test(await text(head)));
  assert.ok(await head.evaluate((node) => node.classList.contains("alarm")));
  await eventually("the advice", async () => (await page.locator("[data-advice]").first().getAttribute("data-advice")) === "refused");
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("empty levels are one low step: in the picture, in words, and for the arrow keys", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { engine } = mock;
  // Files of the last level only, beside those of L0.
  engine.files[1] = [];
  engine.files[2] = [];
  engine.jobs = [];
  engine.epoch++;
  const context = await browser.newContext(LAPTOP);
  const page = await context.newPage();
  await page.addInitScript(() => {
    const drawn = new Set<string>();
    (window as unknown as { drawn: Set<string> }).drawn = drawn;
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (words: string, ...rest: [number, number]) {
      if (this.canvas.classList.contains("still")) drawn.add(words);
      return fillText.call(this, words, ...rest);
    };
  });
  await page.goto(mock.url);
  await page.waitForSelector('.state[data-state="live"]', { timeout: GUARD_MS });
  const drawn = () => page.evaluate(() => [...(window as unknown as { drawn: Set<string> }).drawn]);
  await eventually("it is drawn", async () => (await drawn()).includes("L1–L2"));
  const stage = page.locator(".stage");
  await stage.focus();
  await page.evaluate(() => (window as unknown as { drawn: Set<string> }).drawn.clear());
  await stage.press("ArrowDown");
  await eventually("it is drawn again", async () => (await drawn()).includes("L1–L2"));
  const words = await drawn();
  assert.ok(words.includes("L0") && words.includes("L3") && words.includes("empty"), words.join());
  assert.ok(!words.includes("L1") && !words.includes("L2"), words.join());
  const told = await text(page.locator(`#${await stage.getAttribute("aria-describedby")}`));
  assert.match(told, /^L0: \d+ files?, [\d.]+ MiB; L1 to L2: empty; L3: \d+ files, [\d.]+ GiB, [\d.]+ % of its target$/);
  assert.match(await text(page.locator(".unseen")), /^L0 /);
  await stage.press("ArrowDown");
  assert.match(await text(page.locator(".unseen")), /^L3 /);
  await stage.press("ArrowUp");
  assert.match(await text(page.locator(".unseen")), /^L0 /);
  await context.close();
});

test("a cluster that is not known any more is not called as it was", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { page } = await open(mock);
  await page.locator("#cluster").scrollIntoViewIfNeeded();
  const state = page.locator('[data-cluster="state"]');
  await eventually("the state", async () => /1 of 3 shards not served/.test(await text(state)));
  await page.route("**/api/v1/cluster", (route) => route.fulfill({ status: 503, json: { error: "the node is ending" } }));
  await eventually("it is not known", async () => (await text(state)) === "not known now: the node is ending");
  assert.ok(await state.evaluate((node) => node.classList.contains("bad")));
  await page.unroute("**/api/v1/cluster");
  await eventually("it is known again", async () => /1 of 3 shards not served/.test(await text(state)));
  await page.context().close();
});

test("more memory in use than the budget is more than 100 % of it", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  mock.engine.memtable = 200 * MIB;
  const { page } = await open(mock);
  const total = page.locator("#memory .card-aside");
  await eventually("the figures", async () => (await text(total)) !== "");
  const [, used, share] = /^(\d+) MiB of 128 MiB \((\d+) %\)$/.exec(await text(total)) ?? assert.fail(await text(total));
  assert.ok(Number(used) > 200 && Math.abs(Number(share) - Number(used) / 1.28) < 1, `${used} MiB are ${share} %`);
  await page.context().close();
});

/** What of a card is read aloud, without what changes from one moment to the next. */
async function aloud(page: Page, id: string): Promise<string> {
  const snapshot = await page.locator(`#${id}`).ariaSnapshot();
  return `${snapshot.replace(/(?<!\w)\d[\d.,:]*( ?(?:[KMGT]iB|[kMG](?!\w)|µs|ms|s|min|h|d|%)(?![A-Za-z]))?/g, "N").replace(/N( N)+/g, "N")}\n`;
}

for (const id of CARDS) {
  test(`what is read aloud of the card ${id}`, async (t) => {
    const mock = await still();
    t.after(() => mock.close());
    const { page, errors } = await open(mock, { reducedMotion: "reduce" });
    await page.locator(`#${id}`).scrollIntoViewIfNeeded();
    await follow(page);
    await eventually("its content", async () => !/looking …/.test(await text(page.locator(`#${id}`))));
    let told = await aloud(page, id);
    const file = new URL(`${id}.yml`, ARIA);
    if (process.env.UPDATE !== undefined) {
      mkdirSync(ARIA, { recursive: true });
      writeFileSync(file, told);
    }
    const expected = readFileSync(file, "utf8");
    // What a busy browser has not drawn yet comes with later events.
    for (let looks = 0; told !== expected && looks < LOOKS; looks++) {
      await follow(page);
      told = await aloud(page, id);
    }
    assert.match(told, /^- region "/, "a card is a region with a name");
    assert.match(told, /heading "/);
    assert.equal(told, expected, "UPDATE=1 writes it anew");
    assert.deepEqual(errors, []);
    await page.context().close();
  });
}

/** Words of a card that can hardly be told from what is behind them: less than 4.5 to 1, as WCAG counts. */
async function faint(page: Page, id: string): Promise<string[]> {
  // What tsx puts around functions that have names.
  await page.evaluate("globalThis.__name ??= (it) => it; 0");
  return page.evaluate((id) => {
    const dot = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true })!;
    /** The colour as the screen shows it, over `below`. */
    const seen = (color: string, below: number[]): number[] => {
      dot.fillStyle = `rgb(${below.join()})`;
      dot.fillRect(0, 0, 1, 1);
      dot.fillStyle = color;
      dot.fillRect(0, 0, 1, 1);
      return [...dot.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    };
    const behind = (node: Element): number[] => {
      const own = getComputedStyle(node).backgroundColor;
      return seen(own, node.parentElement === null ? [255, 255, 255] : behind(node.parentElement));
    };
    const light = (color: number[]): number => {
      const [r, g, b] = color.map((part) => part / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
    };
    const found: string[] = [];
    const walker = document.createTreeWalker(document.getElementById(id)!, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      const parent = node.parentElement!;
      if ((node.textContent ?? "").trim() === "" || parent.closest("svg, [role=img], [aria-hidden=true], :disabled") !== null || parent.getClientRects().length === 0) continue;
      const below = behind(parent);
      const [a, b] = [light(seen(getComputedStyle(parent).color, below)), light(below)];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) found.push(`${ratio.toFixed(2)}: ${node.textContent!.trim().slice(0, 40)}`);
    }
    return found;
  }, id);
}

/** How many colours the canvases of a card have. */
function colours(page: Page, id: string): Promise<number[]> {
  return page.evaluate((id) => [...document.querySelectorAll<HTMLCanvasElement>(`#${id} canvas:not(.moving)`)].map((canvas) => {
    const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set<number>();
    for (let at = 0; at < data.length; at += 4 * 7) seen.add((data[at]! << 16) | (data[at + 1]! << 8) | data[at + 2]!);
    return seen.size;
  }), id);
}

const FORMS = [
  ["laptop, light", { ...LAPTOP, colorScheme: "light" }], ["laptop, dark", { ...LAPTOP, colorScheme: "dark" }],
  ["phone, light", { ...PHONE, colorScheme: "light" }], ["phone, dark", { ...PHONE, colorScheme: "dark" }],
] as const;

for (const [form, options] of FORMS) {
  test(`terraces, advice, debt and charts are to be seen: ${form}`, async (t) => {
    const mock = await still({ scenario: "stalled" });
    t.after(() => mock.close());
    [mock.engine.stall_cause, mock.engine.immutables] = ["memtables wait for their flush", 3];
    const { page, errors } = await open(mock, { ...options, reducedMotion: "reduce" });
    const paper = await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
    assert.equal(paper, options.colorScheme);
    for (const id of ["terraces", "advice", "debt", "series"]) {
      const card = page.locator(`#${id}`);
      await card.scrollIntoViewIfNeeded();
      await follow(page);
      const box = (await card.boundingBox())!;
      assert.ok(box.x >= 0 && box.x + box.width <= options.viewport.width && box.height > 40, `#${id}: ${JSON.stringify(box)}`);
      // Nothing of it is cut off at its right.
      const cut = await card.evaluate((node) => [...node.querySelectorAll<HTMLElement>("p, dd, dt, span, figcaption, button")]
        .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 && getComputedStyle(one).overflowX === "hidden" && getComputedStyle(one).textOverflow !== "ellipsis")
        .map((one) => one.textContent));
      assert.deepEqual(cut, [], id);
      assert.deepEqual(await faint(page, id), [], id);
    }
    await eventually("the advice", async () => /memtables hold 64 MiB/.test(await text(page.locator("#advice"))));
    await eventually("the hillside has more than 20 colours", async () => (await colours(page, "terraces"))[0]! > 20);
    const charts = page.locator("#series .chart[data-points]");
    assert.ok((await charts.count()) > 3);
    for (const chart of await charts.all()) {
      await chart.scrollIntoViewIfNeeded();
      await eventually("it has points", async () => Number(await chart.getAttribute("data-points")) > 1);
      assert.match((await chart.getByRole("img").getAttribute("aria-label")) ?? "", /^.+: .+/);
    }
    await eventually("every chart has more than 3 colours", async () => (await colours(page, "series")).every((count) => count > 3));
    assert.deepEqual(errors, []);
    await page.context().close();
  });
}
