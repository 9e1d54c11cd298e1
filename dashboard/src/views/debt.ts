// What is still to be done: how far L0 is from slowing writes, what is left to merge, and the value log with
// its garbage.
import { debtOf } from "../debt.ts";
import { card, h, setText, setValue, setWidth } from "../dom.ts";
import { bytes, percent, plural } from "../format.ts";
import type { Store } from "../store.ts";

interface Line {
  root: HTMLElement;
  value: HTMLElement;
  fill: HTMLElement;
  note: HTMLElement;
}

function line(id: string, name: string): Line {
  const value = h("span", { class: "num", "data-debt": id });
  const fill = h("span", { class: "bar-fill" });
  const note = h("span", { class: "muted" });
  return { value, fill, note, root: h("div", { class: "debt-line" }, h("span", { class: "pool-name" }, name), value, h("span", { class: "bar", "aria-hidden": "true" }, fill), note) };
}

export function debtCard(store: Store): HTMLElement {
  const { root, body } = card("debt", "Value log and compaction debt");
  const [l0, merging, memtables, log] = [line("l0", "L0"), line("merging", "being merged"), line("memtables", "waiting for a flush"), line("log", "value log")];
  body.append(h("div", { class: "debts" }, l0.root, merging.root, memtables.root, log.root));
  store.on("live", ({ shape, jobs }) => {
    const debt = debtOf(shape, jobs);
    setValue(l0.value, `${plural(debt.l0_files, "file")}, ${bytes(debt.l0_bytes)}`, debt.l0_files);
    setWidth(l0.fill, debt.l0_files / Math.max(1, debt.l0_stop_files));
    l0.root.classList.toggle("over", debt.l0_slowdown_files > 0 && debt.l0_files >= debt.l0_slowdown_files);
    setText(l0.note, `merged from ${debt.l0_compaction_files} files on; ${debt.l0_slowdown_files} slow writes, ${debt.l0_stop_files} stop them`);
    const input = jobs.filter((job) => job.kind === "compaction").reduce((sum, job) => sum + job.input_bytes, 0);
    setValue(merging.value, `${bytes(debt.running_bytes)} left`, debt.running_bytes);
    setWidth(merging.fill, input > 0 ? debt.running_bytes / input : 0);
    setText(merging.note, debt.running_jobs === 0 ? "no compaction runs" : `${plural(debt.running_jobs, "compaction")} of ${bytes(input)}`);
    setValue(memtables.value, plural(debt.waiting_memtables, "memtable"), debt.waiting_memtables);
    setWidth(memtables.fill, debt.waiting_memtables / 4);
    setText(memtables.note, "a flush takes all that wait");
    const { value_bytes, garbage_bytes, value_segments, log_segments } = shape;
    setValue(log.value, value_segments === 0 ? "none" : bytes(value_bytes), value_bytes);
    setWidth(log.fill, debt.garbage_share ?? 0);
    const collecting = jobs.some((job) => job.kind === "garbage_collection") ? ", being collected" : "";
    setText(log.note, value_segments === 0 ? `no value segment; ${plural(log_segments, "log segment")}`
      : `${percent(debt.garbage_share)} garbage (${bytes(garbage_bytes)})${collecting}, in ${plural(value_segments, "value segment")}; ${plural(log_segments, "log segment")}`);
  });
  return root;
}
