// Scales: the colours of heat, the axis of keys, the hillside, and what is kept over time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { shape, summary } from "../mock/answers.ts";
import { Engine } from "../mock/engine.ts";
import { explain } from "../mock/explain.ts";
import { Ring } from "../mock/history.ts";
import { SHAPE_FILES_MAX } from "../src/api.ts";
import { KeyAxis, shareBetween } from "../src/axis.ts";
import { heatRamp, heatShare, lightness } from "../src/color.ts";
import { blockAt, blocksOf, hillOf, toPlace, toX } from "../src/hill/geometry.ts";
import { inWords } from "../src/hill/words.ts";
import { MovingBlocks } from "../src/hill/blocks.ts";
import { SeriesBuffer } from "../src/series-buffer.ts";

const engine = new Engine("live");
for (let second = 0; second < 20; second++) engine.tick(1);
const family = shape(engine, true).families[0]!;
const axis = KeyAxis.of(family);

test("lightness of the heat scale is monotone and even", () => {
  for (const theme of ["light", "dark"] as const) {
    const steps = heatRamp(theme).map(lightness);
    const gaps = steps.slice(1).map((value, at) => (value - steps[at]!) * (theme === "light" ? -1 : 1));
    const mean = gaps.reduce((a, b) => a + b) / gaps.length;
    for (const gap of gaps) assert.ok(gap > mean * 0.3 && gap < mean * 1.8, `${theme}: a step of ${gap}, ${mean} on average`);
  }
});

test("heat: none is cold, the hottest is hot, the scale is logarithmic", () => {
  assert.equal(heatShare(0, 100), 0);
  assert.equal(heatShare(100, 100), 1);
  assert.equal(heatShare(1, 0), 0);
  assert.ok(Math.abs(heatShare(10, 100) - 2 / 3) < 0.01);
});

test("the axis keeps the order of keys and gives the deepest level even widths", () => {
  const deepest = family.levels.at(-1)!.files!;
  const places = deepest.map((file) => axis.at(file.smallest.hex));
  assert.ok(places.every((place, at) => at === 0 || place > places[at - 1]!));
  const widths = deepest.map((file) => (axis.at(file.largest.hex) - axis.at(file.smallest.hex)) / file.size_bytes);
  const mean = widths.reduce((a, b) => a + b) / widths.length;
  const near = widths.filter((width) => width > mean / 2.5 && width < mean * 2.5).length;
  assert.ok(near / widths.length > 0.9, `${near} of ${widths.length} are near their share`);
  assert.equal(axis.at("00"), 0);
  assert.equal(axis.at("ff"), 1);
  assert.equal(KeyAxis.of({ ...family, levels: [] }).at("00"), 0.5);
});

test("between two keys the bytes decide that differ", () => {
  assert.ok(Math.abs(shareBetween("6161610000", "6161618000", "616161ff00") - 0.5) < 0.01);
  assert.equal(shareBetween("61", "61", "61"), 0.5);
});

test("blocks stand inside the hill and can be found where they are", () => {
  const hill = hillOf(family, 900);
  const view = { from: 0, to: 1 };
  const blocks = blocksOf(family, hill, axis, view);
  assert.equal(blocks.length, family.levels.reduce((sum, level) => sum + level.file_count, 0));
  for (const block of blocks) {
    const step = hill.steps[block.level]!;
    assert.ok(block.x >= hill.key_left - 1 && block.x + block.width <= hill.key_right + 1);
    assert.ok(block.y >= step.top && block.y + block.height <= step.tread + 0.01, `L${block.level} ${block.y}`);
    assert.ok(block.height > 0 && block.width > 0);
    if (block.width > 3) assert.equal(blockAt(blocks, block.x + block.width / 2, block.y + block.height / 2), block);
  }
  assert.equal(blockAt(blocks, -50, -50), null);
  assert.ok(Math.abs(toPlace(hill, view, toX(hill, view, 0.3)) - 0.3) < 1e-9);
});

test("an empty store has a hill, too", () => {
  assert.deepEqual(blocksOf(null, hillOf(null, 390), KeyAxis.EMPTY, { from: 0, to: 1 }), []);
  assert.ok(hillOf(null, 390).height > 200);
});

test("10,000 blocks are laid out in time for the next frame but few, and jump", () => {
  const levels = family.levels.map((level) => ({ ...level }));
  const template = levels[3]!.files![0]!;
  levels[3] = { ...levels[3]!, file_count: 10_000, files: Array.from({ length: 10_000 }, (_, i) => ({
    ...template, number: 100_000 + i,
    smallest: { ...template.smallest, hex: `00${(i * 100).toString(16).padStart(8, "0")}` },
    largest: { ...template.largest, hex: `00${(i * 100 + 99).toString(16).padStart(8, "0")}` },
  })) };
  const many = { ...family, levels };
  const start = performance.now();
  const blocks = blocksOf(many, hillOf(many, 900), KeyAxis.of(many), { from: 0, to: 1 });
  const moving = new MovingBlocks();
  moving.aim(blocks, many, false);
  assert.ok(performance.now() - start < 1000);
  assert.equal(moving.advance(16), false);
});

test("very many files are listed with their neighbours, and stand where all of them do", () => {
  const store = new Engine("huge");
  const huge = shape(store, true).families[0]!;
  const all = huge.levels.reduce((sum, level) => sum + level.file_count, 0);
  const listed = huge.levels.flatMap((level) => level.files!);
  assert.ok(all > 2 * SHAPE_FILES_MAX && listed.length <= SHAPE_FILES_MAX + 100 * huge.levels.length, `${listed.length} of ${all}`);
  for (const level of huge.levels) {
    assert.equal(level.files!.reduce((sum, file) => sum + (file.file_count ?? 1), 0), level.file_count);
    assert.equal(level.files!.reduce((sum, file) => sum + file.size_bytes, 0), level.size_bytes);
  }
  const hill = hillOf(huge, 900);
  const blocks = blocksOf(huge, hill, KeyAxis.of(huge), { from: 0, to: 1 });
  assert.equal(blocks.length, listed.length);
  assert.ok(blocks.every((block) => block.x >= hill.key_left - 1 && block.x + block.width <= hill.key_right + 1));
});

test("blocks ease to their places, new ones grow, old ones go", () => {
  const hill = hillOf(family, 900);
  const blocks = blocksOf(family, hill, axis, { from: 0, to: 1 });
  const moving = new MovingBlocks();
  moving.aim(blocks.slice(1), family, false);
  moving.aim(blocks.slice(0, -1), family, false);
  const [fresh, old] = [blocks[0]!, blocks.at(-1)!];
  assert.equal(moving.shown.get(fresh.number)!.height, 1);
  for (let frame = 0; frame < 200 && moving.advance(16); frame++);
  assert.equal(moving.shown.get(fresh.number)!.height, fresh.height);
  assert.equal(moving.shown.has(old.number), false);
});

test("series: history before, gaps where seconds are missing, stalls as bands, the hit rate of the window", () => {
  const base = { ...summary(engine), stall: { cause: null, is_stopped: false, seconds_total: 0, count: 0 } };
  const series = new SeriesBuffer();
  const at = (second: number, more: object = {}) => ({ ...base, now_ms: second * 1000, block_hits: second * 90, block_misses: second * 10, ...more });
  const ring = new Ring();
  for (let second = 90; second <= 101; second++) ring.push(at(second));
  for (const second of [100, 101, 102]) series.push(at(second));
  series.push(at(102));
  series.merge(ring.history(600));
  assert.equal(series.length, 13);
  const stall = { stall: { ...base.stall, cause: "too many L0 files" } };
  for (const second of [110, 111]) series.push(at(second, stall));
  const [times, reads] = series.window(60, ["reads_per_s"]);
  assert.equal(times!.length, 16);
  assert.equal(reads![13], null);
  assert.ok(times!.every((t, i) => i === 0 || t! > times![i - 1]!));
  assert.deepEqual(series.bands(), [{ cause: "too many L0 files", from: 109, to: 111, held: 2 }]);
  assert.ok(Math.abs(series.hitRate(10)! - 0.9) < 1e-9);
  assert.equal(new SeriesBuffer().hitRate(10), null);
});

test("series: what the server remembers fills every gap, and stays out of what the page saw itself", () => {
  const base = { ...summary(engine), stall: { cause: null, is_stopped: false, seconds_total: 0, count: 0 } };
  const at = (second: number, reads: number) => ({ ...base, now_ms: second * 1000, reads_per_s: reads });
  const [series, ring] = [new SeriesBuffer(), new Ring()];
  for (const second of [100, 101, 110, 111]) series.push(at(second, 1));
  // Sampled a little later than the page got it; and one second more than the page has.
  for (let second = 95; second <= 112; second++) ring.push(at(second + 0.25, 2));
  series.merge(ring.history(600));
  series.push(at(112, 1));
  const [times, reads] = series.window(600, ["reads_per_s"]);
  assert.deepEqual(times, [95.25, 96.25, 97.25, 98.25, 99.25, 100, 101, 102.25, 103.25, 104.25, 105.25, 106.25, 107.25, 108.25, 109.25, 110, 111, 112]);
  assert.deepEqual(reads, times!.map((t) => (Number.isInteger(t) ? 1 : 2)));
  assert.equal(series.known(600), 17.75);
  // Ten minutes are kept, whatever is remembered.
  const [late, long] = [new SeriesBuffer(), new Ring()];
  late.push(at(2005, 1));
  for (let second = 1300; second <= 1999; second++) long.push(at(second, 2));
  late.merge(long.history(600));
  assert.equal(late.window(86_400, ["reads_per_s"])[0]![0], 1405);
  assert.equal(late.length, 596);
  const empty = new SeriesBuffer();
  empty.merge(long.history(600));
  assert.equal(empty.length, 600);
});

test("series: a restart leaves what was before, and no hit rate from counters of two runs", () => {
  const base = { ...summary(engine), stall: { cause: null, is_stopped: false, seconds_total: 0, count: 0 } };
  const series = new SeriesBuffer();
  for (const second of [1, 2, 3]) series.push({ ...base, now_ms: second * 1000, block_hits: 1000 * second, block_misses: 0 });
  series.restart();
  assert.equal(series.hitRate(10), null);
  series.push({ ...base, now_ms: 4000, block_hits: 3, block_misses: 1 });
  assert.equal(series.length, 4);
  assert.equal(series.hitRate(10), 0.75);
  assert.equal(series.mean("reads_per_s", 2), base.reads_per_s);
});

test("series: a day of steps has gaps where the server was down, and says how much of a step was held back", () => {
  const series = new SeriesBuffer();
  const history = new Ring().history(86_400);
  assert.equal(history.step_s, 30);
  series.replace(history);
  const [times, reads] = series.window(86_400, ["reads_per_s"]);
  assert.equal(times!.length - history.t_ms.length, 1, "one gap");
  assert.equal(reads!.filter((value) => value === null).length, 1);
  const bands = series.bands();
  const whole = bands.filter((band) => band.to - band.from === 240);
  assert.ok(whole.length > 5 && whole.every((band) => band.held === 24), JSON.stringify(bands.slice(0, 3)));
});

test("empty levels next to each other share one low step, L0 and those with files have their own", () => {
  const [full, none] = [family.levels[1]!, { ...family.levels[1]!, file_count: 0, size_bytes: 0, files: [] }];
  const deep = { ...family, levels: [family.levels[0]!, none, none, none, full, none, full] };
  const hill = hillOf(deep, 900);
  assert.deepEqual(hill.steps.map((step) => [step.folded_to, step.is_hidden]),
    [[null, false], [3, false], [null, true], [null, true], [null, false], [5, false], [null, false]]);
  const heights = hill.steps.filter((step) => !step.is_hidden).map((step) => step.tread - step.top);
  assert.ok(heights[1] === heights[3] && heights[1]! < heights[0]! / 2, heights.join());
  assert.ok(hill.steps.every((step, at) => at === 0 || step.is_hidden || step.top === hill.steps[at - 1]!.tread));
  for (const block of blocksOf(deep, hill, KeyAxis.of(deep), { from: 0, to: 1 })) {
    const step = hill.steps[block.level]!;
    assert.ok(block.y >= step.top && block.y + block.height <= step.tread + 0.01);
  }
  const only_l0 = hillOf({ ...family, levels: [none] }, 900);
  assert.ok(only_l0.steps.every((step) => step.folded_to === null), "a family without files has a whole hill");
  assert.equal(hillOf({ ...family, levels: [full] }, 900).steps[1]!.folded_to, 3);
  const bare = (level: typeof full) => ({ ...level, file_count: 2, size_bytes: 3 << 20, target_bytes: null });
  const told = inWords(hill, { ...deep, levels: deep.levels.map((level) => (level.file_count === 0 ? level : bare(level))) });
  assert.equal(told, "L0: 2 files, 3 MiB; L1 to L3: empty; L4: 2 files, 3 MiB; L5: empty; L6: 2 files, 3 MiB");
  const filled = { ...family, levels: [none, { ...bare(full), target_bytes: 4 << 20 }] };
  assert.match(inWords(hillOf(filled, 900), filled), /^L0: empty; L1: 2 files, 3 MiB, 75 % of its target; L2 to L3: empty$/);
});

test("the mock explains as the contract says", () => {
  const there = explain(engine, 0, "user:000000017");
  assert.equal(there.steps.at(-1)!.outcome, "found");
  assert.equal(there.total_ns, there.steps.reduce((sum, step) => sum + step.ns, 0));
  assert.equal(explain(engine, 0, "nobody").found, null);
});
