// The family and the SST that are chosen, the key that is opened and the one that is followed, in a real browser against a mock whose tree stands still.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, BrowserContextOptions, Page, Route } from "playwright-core";
import type { Explanation, HotKey, HotKeys, Shape } from "../src/api.ts";
import { MIB } from "../mock/engine.ts";
import { type Mock, type MockOptions, startMock } from "../mock/server.ts";
import { KeyAxis } from "../src/axis.ts";
import { eventually, LAPTOP, launch, openPage, type Recorded } from "./browser.ts";

let browser: Browser;

before(async () => {
  browser = await launch();
});

after(() => browser.close());

/** A mock whose heat wanders, and whose files stay. */
async function still(options: MockOptions = {}): Promise<Mock> {
  const mock = await startMock({ warm_s: 10, ...options });
  mock.engine.tick = (dt) => void (mock.engine.time_s += dt);
  return mock;
}

/** The page of `mock`, and the addresses that it asks for. */
async function open(mock: Mock, options: BrowserContextOptions = {}): Promise<{ page: Page; errors: string[]; asked: URL[] }> {
  const asked: URL[] = [];
  const { page, errors } = await openPage(browser, { ...LAPTOP, ...options }, mock.url);
  page.on("request", (request) => asked.push(new URL(request.url())));
  return { page, errors, asked };
}

const events = (page: Page) => page.evaluate(() => (window as unknown as { recorded: Recorded }).recorded.events);

/** Chooses an SST with a model, with the keyboard. */
async function choose(page: Page): Promise<void> {
  const stage = page.locator(".stage");
  await stage.focus();
  await stage.press("ArrowDown");
  for (let press = 0; press < 50; press++) {
    const said = (await page.locator(".unseen").textContent()) ?? "";
    const [, level, number] = /^L(\d) (\d{6})\.sst/.exec(said) ?? assert.fail(`it says ${said}`);
    if (Number(level) > 0 && Number(number) % 5 !== 0) {
      await stage.press("Enter");
      await page.waitForSelector(".file-panel .model-line");
      return;
    }
    await stage.press(level === "0" ? "ArrowDown" : "ArrowRight");
  }
  assert.fail("no SST has a model");
}

test("a store with slots: keys are shown without them, and a followed key is where its file is", async (t) => {
  const mock = await still({ slots: true });
  t.after(() => mock.close());
  const ask = async <T>(path: string): Promise<T> => (await (await fetch(`${mock.url}/api/v1/${path}`)).json()) as T;
  const { page, errors } = await open(mock);
  await choose(page);
  const key = /^(cart|feed|session|user):\d+/;
  const facts = await page.locator(".file-panel .facts dd").allTextContents();
  assert.match(facts[0]!, key);
  assert.match(facts[1]!, key);
  assert.match((await page.locator(".unseen").textContent()) ?? "", /keys: (cart|feed|session|user):\d+ … (cart|feed|session|user):\d+;/);
  const name = (await ask<HotKeys>("hotkeys")).read[0]!.key.text;
  await page.getByLabel("Key", { exact: true }).fill(name);
  await page.getByLabel("Key", { exact: true }).press("Enter");
  await page.waitForSelector(".way-step");
  const explained = await ask<Explanation>(`explain?key=${name}`);
  const axis = KeyAxis.of((await ask<Shape>("shape")).families[0]!);
  const place = axis.at(explained.engine_key);
  assert.ok(place > 0.05 && Math.abs(place - axis.at(`00${explained.key.hex}`)) > 0.05, "it makes a difference");
  assert.equal(await page.locator(".stage").getAttribute("data-key"), place.toFixed(4));
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("the panel of an SST is built once: focus stays in it, its model is asked for once, Escape goes back to the tree", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { page, errors, asked } = await open(mock);
  await choose(page);
  const close = page.locator(".file-panel").getByRole("button", { name: "Close" });
  for (const way of ["Escape", "Enter"]) {
    if (way === "Enter") await choose(page);
    await close.focus();
    await page.evaluate('document.querySelector(".model-line").kept = true');
    const before = await events(page);
    await eventually("events come", async () => (await events(page)) > before + 7);
    assert.ok(await close.evaluate((node) => node === document.activeElement), "the focus is gone");
    assert.equal(await page.evaluate('document.querySelector(".model-line").kept'), true, "the model was drawn again");
    await page.keyboard.press(way);
    await page.waitForSelector(".file-panel", { state: "hidden" });
    assert.ok(await page.locator(".stage").evaluate((node) => node === document.activeElement), "the focus is not on the tree");
  }
  assert.equal(asked.filter((url) => url.pathname === "/api/v1/model").length, 2, "one for each choice");
  assert.ok(asked.filter((url) => url.pathname === "/api/v1/filters" && url.searchParams.has("file")).length > 2, "its heat changes");
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("of a large SST 500 partitions and segments are drawn, the first and the last among them", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { page } = await open(mock);
  const segments = Array.from({ length: 5000 }, (_, at) => ({ start: at / 5000, first_block: at, keys: 10, slope: 1 }));
  const partitions = Array.from({ length: 3000 }, () => [5, 2, 1]);
  await page.route("**/api/v1/model*", (route) => route.fulfill({ json: {
    file: Number(new URL(route.request().url()).searchParams.get("file")), keys: 50_000, blocks: 5000, model_bytes: 1, index_bytes: 2, segment_count: 9999, segments, error_counts: [1, 1],
  } }));
  await page.route(/\/api\/v1\/filters\?.*file=/, (route) => route.fulfill({ json: {
    family: "default", files: [{ file: Number(new URL(route.request().url()).searchParams.get("file")), level: 1, partitions }],
  } }));
  await choose(page);
  await eventually("the strip", async () => (await page.locator(".strip").count()) === 1);
  const [knots, cells] = [page.locator(".model-line .knot"), page.locator(".strip g")];
  assert.deepEqual([await knots.count(), await cells.count()], [500, 500]);
  assert.match((await knots.first().textContent()) ?? "", /^segment 0:/);
  assert.match((await knots.last().textContent()) ?? "", /^segment 9998:/);
  assert.match((await cells.last().textContent()) ?? "", /^partition 2999:/);
  const text = (await page.locator(".file-panel").textContent()) ?? "";
  assert.match(text, /3k partitions in key order, of which 500 are shown; 6000 of 15k units in memory/);
  assert.match(text, /10k segments: key → block/);
  await page.context().close();
});

test("a followed key is asked for by its bytes until another one is written, and not at all if some are missing", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { page, asked } = await open(mock, { reducedMotion: "reduce" });
  const hot = (text: string, hex: string, len: number): HotKey => ({ db: 0, key: { text, hex, len }, per_s: 9, error_per_s: 0 });
  const hotkeys: HotKeys = { sampled_one_in: 1, window_s: 60, read: [hot("a\\x00\\xff", "6100ff", 3), hot("b".repeat(256), "62".repeat(256), 1000)], write: [] };
  await page.route("**/api/v1/hotkeys", (route) => route.fulfill({ json: hotkeys }));
  const buttons = page.locator(".top-keys button");
  await eventually("the keys", async () => (await buttons.count()) === 2 && ((await buttons.first().textContent()) ?? "").startsWith("a\\x00\\xff"));
  assert.ok(await buttons.nth(1).isDisabled());
  assert.match((await buttons.nth(1).getAttribute("title")) ?? "", /Too long to be explained here/);
  const queries = () => asked.filter((url) => url.pathname === "/api/v1/explain").map((url) => url.search);
  await page.evaluate("Element.prototype.scrollIntoView = (how) => { window.scrolled = how.behavior; }; 0");
  await buttons.first().click();
  await eventually("it is followed", async () => queries().length === 1);
  assert.equal(await page.evaluate("window.scrolled"), "auto", "for a reader who wants no motion");
  const field = page.getByLabel("Key", { exact: true });
  assert.equal(await field.inputValue(), "a\\x00\\xff");
  await page.getByRole("button", { name: "Explain", exact: true }).click();
  await eventually("it is followed again", async () => queries().length === 2);
  await field.fill("a");
  await field.press("Enter");
  await eventually("another one is followed", async () => queries().length === 3);
  assert.deepEqual(queries(), ["?db=0&hex=6100ff", "?db=0&hex=6100ff", "?db=0&key=a"]);
  await page.context().close();
});

test("a key is opened in the database that it was listed of, and goes when another one cannot be listed", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { page, asked } = await open(mock);
  const field = page.getByLabel("Prefix", { exact: true });
  const rows = page.locator(".browse-keys button");
  const more = page.getByRole("button", { name: "more", exact: true });
  await field.fill("cart:");
  await field.press("Enter");
  await eventually("the keys are listed", async () => (await rows.count()) === 100);
  assert.ok(await more.isVisible());
  // Asked for, and not answered yet.
  const held: Route[] = [];
  await page.route("**/api/v1/keys*", (route) => void held.push(route));
  await page.getByLabel("Database of the keys").fill("99");
  await field.press("Enter");
  await eventually("another database is asked for", async () => held.length === 1);
  assert.ok(!(await more.isVisible()), "the next page would be one of the other database");
  await rows.first().click();
  await eventually("a key is opened", async () => /hash, 340 fields/.test((await page.locator(".browse-value").textContent()) ?? ""));
  const opened = asked.filter((url) => url.pathname === "/api/v1/value").map((url) => url.searchParams.get("db"));
  assert.deepEqual(opened, ["0"]);
  await held[0]!.fulfill({ status: 400, json: { error: "there is no such database" } });
  await eventually("it says why", async () => /Could not list: there is no such database\./.test((await page.locator("#browse").textContent()) ?? ""));
  assert.equal(await rows.count(), 0, "they are not of that database");
  assert.ok(!(await more.isVisible()));
  await page.context().close();
});

test("a family that is chosen with the keyboard is shown, and its tab keeps the focus", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  mock.engine.collections = MIB;
  const { page, errors } = await open(mock);
  const tabs = page.getByRole("group", { name: "Column family" }).getByRole("button");
  await eventually("the families", async () => (await tabs.count()) === 2);
  const collections = tabs.nth(1);
  await collections.focus();
  await page.keyboard.press("Enter");
  await eventually("it is chosen", async () => (await collections.getAttribute("aria-pressed")) === "true");
  assert.equal(await tabs.first().getAttribute("aria-pressed"), "false");
  await eventually("it is shown", async () => (await page.locator(".basin-label").textContent()) === "memtable 1 MiB");
  assert.ok(await collections.evaluate((node) => node === document.activeElement), "the focus is gone");
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("an explanation that was cleared does not come back with an answer that is late", async (t) => {
  const mock = await still();
  t.after(() => mock.close());
  const { page } = await open(mock);
  const field = page.getByLabel("Key", { exact: true });
  const result = page.locator(".explain-result");
  const follow = async (name: string): Promise<void> => {
    await field.fill(name);
    await field.press("Enter");
  };
  await follow("user:1");
  await page.waitForSelector(".way-step");
  const held: Route[] = [];
  await page.route("**/api/v1/explain*", (route) => void held.push(route));
  await follow("user:2");
  await eventually("it is asked for", async () => held.length === 1);
  await page.locator("#explain").getByRole("button", { name: "clear", exact: true }).click();
  assert.ok(await field.evaluate((node) => node === document.activeElement), "the keyboard goes on in the field");
  const answered = page.waitForResponse("**/api/v1/explain*");
  await held[0]!.continue();
  await (await answered).finished();
  await page.unroute("**/api/v1/explain*");
  const before = await events(page);
  await eventually("the next events", async () => (await events(page)) > before + 1);
  assert.equal(await page.locator(".way-step").count(), 0);
  assert.match((await result.textContent()) ?? "", /^Every memtable/);
  await page.context().close();
});
