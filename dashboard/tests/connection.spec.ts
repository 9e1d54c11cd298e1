// What becomes of the stream and of requests, in a real browser against the mock.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Mock, startMock } from "../mock/server.ts";
import { eventually, GUARD_MS, LAPTOP, launch, openPage, type Recorded } from "./browser.ts";
import { wireTo } from "./cut.ts";

let browser: Browser;
let mock: Mock;

before(async () => {
  [browser, mock] = [await launch(), await startMock({ warm_s: 10 })];
});

after(async () => {
  await browser.close();
  await mock.close();
});

const state = (page: Page) => page.locator(".state").getAttribute("data-state");
const events = (page: Page) => page.evaluate(() => (window as unknown as { recorded: Recorded }).recorded.events);
const hide = (page: Page, hidden: boolean) => page.evaluate(`
  Object.defineProperty(document, "hidden", { configurable: true, value: ${hidden} });
  document.dispatchEvent(new Event("visibilitychange"));
`);

test("a hidden page listens no more, and again when it is shown", async () => {
  const { page, errors } = await openPage(browser, LAPTOP, mock.url);
  await eventually("it listens", async () => mock.streams.count() === 1);
  await hide(page, true);
  await eventually("it does not listen", async () => mock.streams.count() === 0);
  assert.equal(await state(page), "paused");
  const before = await events(page);
  await hide(page, false);
  await eventually("it goes on", async () => (await events(page)) > before + 1);
  assert.equal(await state(page), "live");
  assert.equal(mock.streams.count(), 1);
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("a page too many says so, and is served when there is room", async () => {
  await eventually("nobody listens", async () => mock.streams.count() === 0);
  mock.streams.most = 1;
  const { page: first } = await openPage(browser, LAPTOP, mock.url);
  const second = await (await browser.newContext(LAPTOP)).newPage();
  await second.goto(mock.url);
  await second.waitForSelector('.state[data-state="full"]', { timeout: GUARD_MS });
  assert.match((await second.locator(".state").textContent()) ?? "", /too many pages are listening/);
  await first.context().close();
  await second.waitForSelector('.state[data-state="live"]', { timeout: GUARD_MS });
  mock.streams.most = Number.POSITIVE_INFINITY;
  await second.context().close();
});

test("a proxy whose server is gone is not taken for a server with too many pages", async (t) => {
  const wire = await wireTo(mock.url);
  t.after(() => wire.close());
  const { page } = await openPage(browser, LAPTOP, wire.url);
  await page.route("**/api/v1/stream", (route) => route.fulfill({ status: 503, contentType: "text/html", body: "<h1>no server is there</h1>" }));
  wire.cut();
  await page.waitForSelector('.state[data-state="full"]');
  assert.equal(await page.locator(".state [role=status]").textContent(), "the server answered 503, trying again");
  await page.context().close();
});

test("a page that comes back in several ways at a time has one stream", async (t) => {
  const wire = await wireTo(mock.url);
  t.after(() => wire.close());
  await eventually("nobody listens", async () => mock.streams.count() === 0);
  const { page } = await openPage(browser, LAPTOP, wire.url);
  wire.cut();
  await eventually("the loss is shown", async () => (await state(page)) === "lost");
  const before = await events(page);
  wire.mend();
  await page.evaluate('for (let n = 0; n < 3; n++) dispatchEvent(new Event("online"))');
  await eventually("it goes on", async () => (await events(page)) > before + 2);
  await eventually("one stream", async () => mock.streams.count() === 1);
  await page.context().close();
});

test("how long the connection has been lost is shown, and not read aloud every second", async (t) => {
  const wire = await wireTo(mock.url);
  t.after(() => wire.close());
  const { page } = await openPage(browser, LAPTOP, wire.url);
  wire.cut();
  await eventually("the loss is shown", async () => (await state(page)) === "lost");
  await page.evaluate(`
    window.said = 0;
    new MutationObserver(() => window.said++).observe(document.querySelector(".state [role=status]"), { childList: true, characterData: true, subtree: true });
  `);
  const times = new Set<string>();
  await eventually("the time goes on", async () => {
    times.add((await page.locator(".state .since").textContent()) ?? "");
    return times.size > 3;
  });
  assert.equal(await page.evaluate("window.said"), 0);
  assert.equal(await page.locator(".state [role=status]").textContent(), "connection lost, trying again");
  await page.context().close();
});

test("Escape cancels the command that runs, and the next one is executed", async () => {
  const { page, errors } = await openPage(browser, LAPTOP, mock.url);
  const log = page.getByRole("log").locator(".command-entry");
  const field = page.getByLabel("Command;");
  const cancel = page.locator("#command").getByRole("button", { name: "Cancel" });
  // It is never answered.
  await page.route("**/api/v1/command*", () => undefined);
  for (const way of ["Escape", "button"]) {
    const before = await log.count();
    await field.fill("GET a");
    await field.press("Enter");
    await eventually("it runs", async () => ((await page.locator("#command").textContent()) ?? "").includes("Escape cancels it"));
    if (way === "Escape") await field.press("Escape");
    else await cancel.click();
    await eventually("it is cancelled", async () => (await log.count()) === before + 1);
    assert.match((await log.last().textContent()) ?? "", /> GET a\(cancelled\)/);
    assert.ok(!(await cancel.isVisible()));
    assert.ok(await field.evaluate((node) => node === document.activeElement), "the keyboard goes on in the line");
  }
  await page.unroute("**/api/v1/command*");
  await field.fill("DBSIZE");
  await field.press("Enter");
  await eventually("a reply", async () => ((await log.last().textContent()) ?? "").includes("(integer) 780"));
  assert.deepEqual(errors, []);
  await page.context().close();
});
