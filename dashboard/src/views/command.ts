// A command line for commands that only read: what was said before comes back with the arrow keys, and replies look as those of
// redis-cli.
import type { CommandAnswer } from "../api.ts";
import { get, Refused } from "../client.ts";
import { card, h, setText } from "../dom.ts";
import { printed, trimmed } from "../resp.ts";

/** Commands that the arrow keys bring back, and replies that are shown. */
const MOST_LINES = 200;
const MOST_REPLIES = 50;
const READY = "commands that only read";

export function commandCard(): HTMLElement {
  const about = h("span", { class: "muted", role: "status" }, READY);
  const { root, body } = card("command", "Command line", about);
  const db = h("input", { type: "number", min: "0", max: "127", value: "0", id: "command-db", inputmode: "numeric", "aria-label": "Database of the commands" });
  const line = h("input", {
    type: "text", id: "command-line", placeholder: "HGETALL user:1", maxlength: "4096", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    enterkeyhint: "go", "aria-label": "Command; the arrow keys bring earlier ones back",
  });
  const clear = h("button", { type: "button", class: "quiet-button" }, "Clear");
  const cancel = h("button", { type: "button", class: "quiet-button", title: "Cancel (Escape)", hidden: true }, "Cancel");
  const form = h("form", { class: "explain-form" }, h("label", { class: "db" }, h("span", {}, "db"), db), line, h("button", { type: "submit" }, "Run"), cancel, clear);
  const log = h("div", { class: "command-log", role: "log", tabindex: "0", "aria-label": "Replies" });
  body.append(form, log);
  const said: string[] = [];
  // Where the arrow keys stand, and what was being written before.
  let at = 0;
  let draft = "";
  // Ends the command that runs.
  let running: AbortController | null = null;

  const show = (prompt: string, lines: string[], bad: boolean): void => {
    const reply = h("pre", { class: bad ? "bad" : "" }, lines.join("\n"));
    log.append(h("div", { class: "command-entry" }, h("div", { class: "command-said" }, prompt), reply));
    while (log.children.length > MOST_REPLIES) log.firstElementChild?.remove();
    log.scrollTop = log.scrollHeight;
  };
  const run = async (text: string, number: number): Promise<void> => {
    const prompt = `${number === 0 ? "" : `[${number}]`}> ${text}`;
    const control = new AbortController();
    running = control;
    cancel.hidden = false;
    setText(about, "running; Escape cancels it");
    try {
      const answer = await get<CommandAnswer>("command", { db: number, line: text }, { signal: control.signal });
      const lines = printed(answer.reply);
      show(prompt, answer.is_cut ? [...lines, "(cut: not all of the reply is shown)"] : lines, answer.reply.type === "error");
    } catch (error) {
      const why = control.signal.aborted ? "(cancelled)" : error instanceof Refused ? `(refused) ${error.message}` : "(error) the server does not answer";
      show(prompt, [why], true);
    } finally {
      running = null;
      if (document.activeElement === cancel) line.focus();
      cancel.hidden = true;
      setText(about, READY);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = trimmed(line.value);
    // The one before is answered first.
    if (text === "" || running !== null) return;
    if (said.at(-1) !== text) said.push(text);
    if (said.length > MOST_LINES) said.shift();
    [at, draft, line.value] = [said.length, "", ""];
    void run(text, Number(db.value) || 0);
  });
  cancel.addEventListener("click", () => running?.abort());
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
  });
  clear.addEventListener("click", () => {
    log.textContent = "";
    line.focus();
  });
  line.addEventListener("keydown", (event) => {
    const to = event.key === "ArrowUp" ? at - 1 : event.key === "ArrowDown" ? at + 1 : -1;
    if (to < 0 || to > said.length) return;
    event.preventDefault();
    if (at === said.length) draft = line.value;
    at = to;
    line.value = said[at] ?? draft;
    line.setSelectionRange(line.value.length, line.value.length);
  });
  return root;
}
