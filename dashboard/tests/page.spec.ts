// The page in a real browser. Against a running server if TERRACE_URL says where (it should be under
// some load: SET and GET of keys), else against the mock.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import type { Cluster, Explanation, History, HotKeys, KeyList, KeyValue, Live, Memory, Shape, Summary } from "../src/api.ts";
import { type Mock, startMock } from "../mock/server.ts";
import { bytes, count } from "../src/format.ts";
import { eventually, LAPTOP, launch, openPage, PHONE, type Recorded } from "./browser.ts";
import { wireTo } from "./cut.ts";

const outside = process.env.TERRACE_URL?.replace(/\/$/, "");
let browser: Browser;
let mock: Mock | null = null;
let base: string;

before(async () => {
  browser = await launch();
  mock = outside === undefined ? await startMock() : null;
  base = outside ?? mock!.url;
});

after(async () => {
  await browser.close();
  await mock?.close();
});

function open(options: BrowserContextOptions, url = base): Promise<{ page: Page; errors: string[] }> {
  return openPage(browser, options, url);
}

async function api<T>(path: string): Promise<T> {
  const response = await fetch(`${base}/api/v1/${path}`);
  assert.equal(response.status, 200, path);
  return (await response.json()) as T;
}

/** The last event and what the page made of it, in one step, so that none comes between. */
function shown(page: Page): Promise<{ live: Live; events: number; values: Record<string, string>; texts: Record<string, string>; pools: Record<string, string> }> {
  return page.evaluate(() => {
    const values: Record<string, string> = {};
    const texts: Record<string, string> = {};
    const pools: Record<string, string> = {};
    for (const node of document.querySelectorAll<HTMLElement>("[data-kpi]")) {
      values[node.dataset.kpi!] = node.dataset.value ?? "";
      texts[node.dataset.kpi!] = node.textContent ?? "";
    }
    for (const node of document.querySelectorAll<HTMLElement>("[data-pool]")) pools[node.dataset.pool!] = node.dataset.value ?? "";
    const { last, events } = (window as unknown as { recorded: Recorded }).recorded;
    return { live: last!, events, values, texts, pools };
  });
}

const overflow = (page: Page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
const background = (page: Page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

test("loads under a strict policy, without a word on the console", async () => {
  const answer = await fetch(base);
  const policy = answer.headers.get("content-security-policy") ?? "";
  assert.match(policy, /script-src 'self'|default-src 'self'/);
  assert.doesNotMatch(policy, /unsafe/);
  const { page, errors } = await open(LAPTOP);
  for (const id of ["terraces", "memory", "advice", "debt", "filters", "series", "keys", "slow", "commands", "explain", "browse", "command"]) {
    await page.locator(`#${id}`).scrollIntoViewIfNeeded();
    await page.waitForTimeout(150);
  }
  assert.equal(await overflow(page), 0);
  const painted = () => page.evaluate(() => {
    const canvas = document.querySelector<HTMLCanvasElement>("canvas.still")!;
    const data = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(Array.from({ length: 4000 }, (_, i) => data.slice(i * 400, i * 400 + 3).join())).size;
  });
  await eventually("the hillside has more than 20 colours", async () => (await painted()) > 20);
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("shows the numbers of the API, and goes on showing them", async () => {
  const { page, errors } = await open(LAPTOP);
  let before = -1;
  const seen = new Set<string>();
  for (let look = 0; look < 3; look++) {
    await eventually("the next event", async () => (await page.evaluate(() => (window as unknown as { recorded: Recorded }).recorded.events)) > before);
    const { live, events, values, texts, pools } = await shown(page);
    before = events;
    const { summary } = live;
    assert.equal(values.ops_per_s, String(summary.ops_per_s));
    assert.equal(texts.ops_per_s, `${count(summary.ops_per_s)}/s`);
    assert.equal(values.read_p99, String(summary.latency_us.read.p99 ?? ""));
    assert.equal(values.write_p99, String(summary.latency_us.write.p99 ?? ""));
    assert.equal(values.memory, String(summary.memory.used_bytes));
    assert.equal(texts.memory, bytes(summary.memory.used_bytes));
    assert.equal(values.stall, summary.stall.cause ?? "");
    assert.equal(values.dbsize, String(summary.dbsize_estimate));
    assert.equal(values.disk_bytes, String(summary.disk_bytes));
    assert.equal(values.commands_total, String(summary.commands_total));
    seen.add(texts.commands_total + values.commands_total!);
    for (const pool of live.memory.pools) assert.equal(pools[pool.name], String(pool.used_bytes), pool.name);
  }
  if (mock !== null) assert.equal(seen.size, 3, "the page stands still while the store works");
  if (mock !== null) assert.match((await page.textContent("#memory .advice"))!, /Blocks use up to [\d.]+ MiB that memtables do not need now\./);
  // The stream and the plain endpoints speak of the same store.
  const [summary, memory, { live }] = [await api<Summary>("summary"), await api<Memory>("memory"), await shown(page)];
  assert.equal(summary.started_ms, live.summary.started_ms);
  assert.ok(summary.commands_total >= live.summary.commands_total - 1 || live.summary.now_ms > summary.now_ms);
  assert.equal(memory.budget_bytes, live.summary.memory.budget_bytes);
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("light and dark: as the system says, and as the reader chooses, also next time", async () => {
  const { page } = await open({ ...LAPTOP, colorScheme: "light" });
  const light = await background(page);
  await page.emulateMedia({ colorScheme: "dark" });
  await eventually("the night falls", async () => (await background(page)) !== light);
  const dark = await background(page);
  const button = page.getByRole("button", { name: /^Theme/ });
  await button.click();
  assert.equal(await background(page), light);
  await page.reload();
  assert.equal(await background(page), light);
  await button.click();
  await page.emulateMedia({ colorScheme: "light" });
  assert.equal(await background(page), dark);
  await page.context().close();
});

test("a phone: nothing wider than the screen, everything reached by scrolling down", async () => {
  const { page, errors } = await open(PHONE);
  for (const id of ["terraces", "memory", "keys", "advice", "debt", "explain", "series", "filters", "slow", "commands", "browse", "command"]) {
    await page.locator(`#${id}`).scrollIntoViewIfNeeded();
    await page.waitForTimeout(200);
    const box = (await page.locator(`#${id}`).boundingBox())!;
    assert.ok(box.x >= 0 && box.x + box.width <= 390, `#${id} is from ${box.x}, ${box.width} wide`);
  }
  assert.equal(await overflow(page), 0);
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("keyboard: every control is reached and shows it; arrows and Enter choose an SST", async () => {
  const { page, errors } = await open(LAPTOP);
  const reached: string[] = [];
  for (let press = 0; press < 100; press++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const node = document.activeElement as HTMLElement;
      const style = getComputedStyle(node);
      return { name: node.className || node.id || node.tagName, outlined: style.outlineStyle !== "none" && style.outlineWidth !== "0px" };
    });
    if (at.name === "BODY") break;
    reached.push(at.name);
    assert.ok(at.outlined, `focus on ${at.name} is not to be seen`);
  }
  for (const name of ["theme", "stage", "explain-key", "tab", "browse-prefix", "command-line"]) assert.ok(reached.includes(name), `${name} is not reached: ${reached.join(" ")}`);
  assert.deepEqual(errors, []);
  const { families } = await api<Shape>("shape");
  if (families.some((family) => family.name === "default" && family.levels.some((level) => level.file_count > 0))) {
    const stage = page.locator(".stage");
    const panel = page.locator(".file-panel:not([hidden]) .strip, .file-panel:not([hidden]) .muted").first();
    // A compaction may take the SST away at any of these steps; then the next one is chosen.
    for (let left = 5; ; left--) {
      await stage.focus();
      await stage.press("ArrowRight");
      await stage.press("ArrowDown");
      assert.match((await page.locator(".unseen").textContent()) ?? "", /^L\d \d{6}\.sst/);
      await stage.press("Enter");
      const is_open = await panel.waitFor({ timeout: 10_000 }).then(() => true, () => false);
      if (is_open) break;
      assert.ok(left > 1, "no SST that was chosen is shown");
    }
    await stage.press("Escape");
    await page.waitForSelector(".file-panel", { state: "hidden" });
  }
  // The browser tells of every answer 404, which an SST that is gone gets.
  const others = (errors as string[]).filter((error) => !error.includes("404 (Not Found)"));
  assert.deepEqual(others, []);
  await page.context().close();
});

test("explains a key step by step, as the API does", async () => {
  const { page, errors } = await open(LAPTOP);
  const hot = (await api<HotKeys>("hotkeys")).read[0];
  const name = hot?.key.text ?? "some-key";
  await page.getByLabel("Database", { exact: true }).fill(String(hot?.db ?? 0));
  await page.getByLabel("Key", { exact: true }).fill(name);
  await page.getByLabel("Key", { exact: true }).press("Enter");
  await page.waitForSelector(".way-step");
  const steps = await page.locator(".way-step").evaluateAll((nodes) => nodes.map((node) => (node as HTMLElement).dataset.outcome));
  const answer = await api<Explanation>(`explain?db=${hot?.db ?? 0}&key=${encodeURIComponent(name)}`);
  assert.ok(steps.length > 0 && answer.steps.length > 0);
  assert.equal(steps.includes("found"), answer.steps.some((step) => step.outcome === "found"));
  assert.ok((await page.locator(".explain-head").textContent())!.includes(name.slice(0, 20)));
  await page.getByLabel("Key", { exact: true }).fill("nobody-has-this-key");
  await page.getByLabel("Key", { exact: true }).press("Enter");
  await eventually("the verdict", async () => ((await page.locator(".explain-head").textContent()) ?? "").includes("not there"));
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("charts of a day: the window is chosen, starts and changed options are lines in the charts and words beside them", async () => {
  const { page, errors } = await open(LAPTOP);
  const { marks } = await api<History>("history?seconds=0");
  assert.ok(marks.some((mark) => mark.kind === "start"));
  const chart = page.locator("#chart-throughput");
  await chart.scrollIntoViewIfNeeded();
  const points = async () => Number(await chart.getAttribute("data-points"));
  await eventually("seconds are drawn", async () => (await points()) > 1);
  const by_second = await points();
  await page.getByRole("button", { name: "24 h", exact: true }).click();
  assert.equal(await page.getByRole("button", { name: "24 h", exact: true }).getAttribute("aria-pressed"), "true");
  await eventually("every mark is drawn", async () => Number(await chart.getAttribute("data-marks")) === (await api<History>("history?seconds=0")).marks.length);
  const listed = page.locator("#chart-marks [data-mark]");
  assert.equal(await listed.count(), Math.min(6, marks.length));
  assert.match((await page.locator("#chart-marks").textContent()) ?? "", /start of Terrace/);
  if (mock !== null) {
    const day = await api<History>("history?seconds=86400");
    await eventually("a day is drawn", async () => Math.abs((await points()) - day.t_ms.length) < 5);
    assert.ok((await points()) > 2000 && by_second < 700);
    assert.match((await listed.first().textContent()) ?? "", /changed: rate-limit-bytes/);
    assert.match((await listed.nth(1).textContent()) ?? "", /start of Terrace .*, with other maxmemory, background-jobs/);
    await page.getByRole("button", { name: "1 h", exact: true }).click();
    await eventually("an hour is drawn", async () => (await points()) <= 121);
    await eventually("the mark of that hour", async () => (await chart.getAttribute("data-marks")) === "1");
    // A change while the page looks comes by itself.
    await page.getByRole("button", { name: "3 min", exact: true }).click();
    mock.ring.marks = [...mock.ring.marks, { t_ms: Date.now(), kind: "options", version: "x", options: ["timeout"] }];
    await eventually("the new mark", async () => /changed: timeout/.test((await listed.first().textContent()) ?? ""));
  }
  assert.equal(await overflow(page), 0);
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("what to do, in words; value log and compaction debt, as the API has them", async () => {
  const { page, errors } = await open(LAPTOP);
  await eventually("some advice", async () => (await page.locator("[data-advice]").count()) > 0);
  const text = (await page.locator("#advice").textContent()) ?? "";
  assert.match(text, /\w+\./);
  if (mock !== null) assert.match(text, /(reads the device|Lookups read the device|Nothing to do|Writes) .*\d/);
  const { live } = await shown(page);
  const log = page.locator('[data-debt="log"]');
  await eventually("the value log", async () => (await log.getAttribute("data-value")) === String((await shown(page)).live.shape.value_bytes));
  assert.ok(live.shape.families.every((family) => family.l0_slowdown_files <= family.l0_stop_files));
  assert.match((await page.locator("#debt").textContent()) ?? "", new RegExp(`${live.shape.families[0]!.l0_slowdown_files} slow writes, ${live.shape.families[0]!.l0_stop_files} stop them`));
  if (mock !== null) assert.match((await page.locator("#debt").textContent()) ?? "", /640 MiB.*13\.6 % garbage \(87 MiB\).*in 12 value segments/);
  assert.deepEqual(errors, []);
  await page.context().close();
});

for (const [form, options] of [["laptop", LAPTOP], ["phone, at night", { ...PHONE, colorScheme: "dark" }]] as const) {
  test(`keys by prefix and what is under them, with the keyboard alone (${form})`, async () => {
    const { page, errors } = await open(options);
    const prefix = mock === null ? (await api<KeyList>("keys")).keys[0]!.key.text.slice(0, 2) : "cart:";
    const first = await api<KeyList>(`keys?prefix=${encodeURIComponent(prefix)}`);
    const field = page.getByLabel("Prefix", { exact: true });
    await field.fill(prefix);
    await field.press("Enter");
    const rows = page.locator(".browse-keys button");
    await eventually("the keys are listed", async () => (await rows.count()) === first.keys.length);
    assert.equal(await rows.first().locator(".type-tag").textContent(), first.keys[0]!.type);
    if (mock !== null) {
      const more = page.getByRole("button", { name: "more", exact: true });
      await more.focus();
      await more.press("Enter");
      await eventually("the next page", async () => (await rows.count()) === 130);
      assert.ok(!(await more.isVisible()));
      await eventually("the keyboard goes on there", () => rows.nth(100).evaluate((row) => row === document.activeElement));
      await page.keyboard.press("Home");
    } else await rows.first().focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("Enter");
    const view = page.locator(".browse-value");
    await eventually("the value", async () => ((await view.textContent()) ?? "").includes(first.keys[0]!.type));
    const value = await api<KeyValue>(`value?hex=${first.keys[0]!.key.hex}`);
    assert.equal(await view.locator("tbody tr").count(), value.elements.length);
    if (mock !== null) assert.match((await view.textContent()) ?? "", /hash, 340 fields.*hash-member-0.*The first 100 of 340/);
    await view.getByRole("button", { name: "Follow this key" }).click();
    await page.waitForSelector(".way-step");
    await field.fill("nobody-has-such-a-key");
    await field.press("Enter");
    await eventually("none", async () => /no key begins so/.test((await page.locator("#browse").textContent()) ?? ""));
    assert.equal(await overflow(page), 0);
    assert.deepEqual(errors, []);
    await page.context().close();
  });
}

test("the cluster: what is not served first, shares of the work; no card without a cluster", async () => {
  const cluster = await api<Cluster | null>("cluster");
  const { page, errors } = await open(LAPTOP);
  const root = page.locator("#cluster");
  if (cluster === null) {
    assert.ok(!(await root.isVisible()));
    return page.context().close();
  }
  await root.scrollIntoViewIfNeeded();
  await eventually("the shards", async () => (await root.locator("[data-shard]").count()) === cluster.shards.length);
  const rows = await root.locator("[data-shard]").evaluateAll((nodes) => nodes.map((node) => [(node as HTMLElement).dataset.shard, (node as HTMLElement).dataset.served]));
  assert.deepEqual(rows, cluster.shards.map((shard) => [String(shard.id), shard.is_served ? "yes" : "no"]));
  assert.equal(await root.locator("[data-node]").count(), cluster.nodes.length);
  const text = (await root.textContent()) ?? "";
  assert.ok(text.includes(cluster.name));
  for (const node of cluster.nodes) assert.ok(text.includes(node.redis_address), node.redis_address);
  if (mock !== null) {
    assert.match((await root.locator('[data-cluster="state"]').textContent()) ?? "", /1 of 3 shards not served/);
    const share = (of: string) => root.locator(`[data-share="${of}"]`).allTextContents();
    assert.deepEqual(await share("reads"), ["75 %", "25 %"]);
    assert.deepEqual(await share("writes"), ["25 %", "75 %"]);
    assert.match((await root.locator('[data-cluster="together"]').textContent()) ?? "", /together2\.5/);
    assert.deepEqual(await root.locator("[data-away]").allTextContents(), ["–", "1.23k", "2.47k"]);
    assert.match(text, /the node is not alive/);
    assert.match(text, /1 running, 40 keys waiting/);
  }
  assert.equal(await overflow(page), 0);
  assert.deepEqual(errors, []);
  await page.context().close();
});

test("a lost connection is shown, and comes back by itself", async (t) => {
  const wire = await wireTo(base);
  t.after(() => wire.close());
  const { page } = await open(LAPTOP, wire.url);
  const state = page.locator(".state");
  wire.cut();
  await eventually("the loss is shown", async () => (await state.getAttribute("data-state")) === "lost");
  assert.match((await state.textContent()) ?? "", /connection lost/);
  const events = () => page.evaluate(() => (window as unknown as { recorded: Recorded }).recorded.events);
  const before = await events();
  wire.mend();
  await eventually("live again", async () => (await state.getAttribute("data-state")) === "live");
  await eventually("events again", async () => (await events()) > before + 1);
  await page.context().close();
});

for (const scenario of ["empty", "huge"] as const) {
  test(`a store that is ${scenario}`, { skip: outside !== undefined }, async (t) => {
    const other = await startMock({ scenario, warm_s: 10 });
    t.after(() => other.close());
    const { page, errors } = await open(LAPTOP, other.url);
    if (scenario === "empty") {
      assert.match((await page.locator(".hill-empty").textContent()) ?? "", /No SSTs yet/);
      assert.ok(await page.locator(".hill-empty").isVisible());
    } else {
      assert.equal((await shown(page)).live.shape.families[0]!.levels[2]!.files, null);
      const stage = page.locator(".stage");
      await eventually("files are there", async () => {
        await stage.focus();
        await stage.press("ArrowDown");
        return /^L\d.*stands for: \d+ files/.test((await page.locator(".unseen").textContent()) ?? "");
      });
    }
    assert.ok(!(await page.locator("#cluster").isVisible()), "it is in no cluster");
    await page.locator("#filters").scrollIntoViewIfNeeded();
    await page.waitForTimeout(800);
    assert.equal(await overflow(page), 0);
    assert.deepEqual(errors, []);
    await page.context().close();
  });
}

for (const [name, options] of [["laptop, light", { ...LAPTOP, colorScheme: "light" }], ["phone, dark", { ...PHONE, colorScheme: "dark" }]] as const) {
  test(`a command line that only reads: ${name}`, async () => {
    const { page, errors } = await open(options);
    const field = page.getByLabel("Command;");
    const log = page.getByRole("log");
    const run = async (line: string): Promise<string> => {
      const before = await log.locator(".command-entry").count();
      await field.fill(line);
      await field.press("Enter");
      await eventually(`a reply to ${line}`, async () => (await log.locator(".command-entry").count()) === before + 1);
      assert.equal(await field.inputValue(), "");
      return (await log.locator(".command-entry").last().locator("pre").textContent()) ?? "";
    };
    assert.match(await run("DBSIZE"), /^\(integer\) \d+$/);
    assert.match(await run("NOSUCHCOMMAND a"), /^\(error\) ERR unknown command/);
    if (mock !== null) {
      assert.equal(await run("GET user:000000"), '"{\\"name\\":\\"user:000000\\",\\"seen\\":1766384400,\\"note\\":\\"made up by the mock\\"}"');
      assert.equal(await run("GET nobody"), "(nil)");
      assert.equal(await run("HGETALL cart:000000"), '1# "hash-member-0" => "value 0 of cart:000000"\n2# "hash-member-1" => "value 1 of cart:000000"');
      const long = (await run("LRANGE feed:000000 0 -1")).split("\n");
      assert.equal(long[9], ' 10) "value 9 of feed:000000"');
      assert.deepEqual(long.slice(-2), ["… and 240 more", "(cut: not all of the reply is shown)"]);
    }
    assert.match(await run("SET a 1"), /^\(refused\) SET does not only read/);
    // The arrow keys go through what was said, and come back to what was begun.
    await field.fill("begun");
    await field.press("ArrowUp");
    assert.equal(await field.inputValue(), "SET a 1");
    await field.press("ArrowUp");
    await field.press("ArrowUp");
    const before = mock === null ? "DBSIZE" : "HGETALL cart:000000";
    assert.equal(await field.inputValue(), before);
    for (let press = 0; press < 4; press++) await field.press("ArrowDown");
    assert.equal(await field.inputValue(), "begun");
    assert.equal(await overflow(page), 0);
    // The browser tells of every answer 403.
    assert.deepEqual(errors.filter((error) => !error.includes("403")), []);
    await page.getByRole("button", { name: "Clear" }).last().click();
    assert.equal(await log.locator(".command-entry").count(), 0);
    await page.context().close();
  });
}
