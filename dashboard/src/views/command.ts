// A command line for commands that only read: what was said before comes back with the arrow keys, and replies look as those of
// redis-cli.
import type { CommandAnswer } from "../api.ts";
import { get, Refused } from "../client.ts";
import { card, h, setText } from "../dom.ts";
import { printed } from "../resp.ts";

/** Commands that the arrow keys bring back, and replies that are shown. */
const MOST_LINES = 200;
const MOST_REPLIES = 50;

export function commandCard(): HTMLElement {
  const about = h("span", { class: "muted", role: "status" }, "commands that only read");
  const { root, body } = card("command", "Command line", about);
  const db = h("input", { type: "number", min: "0", max: "127", value: "0", id: "command-db", inputmode: "numeric", "aria-label": "Database of the commands" });
  const line = h("input", {
    type: "text", id: "command-line", placeholder: "HGETALL user:1", maxlength: "4096", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    enterkeyhint: "go", "aria-label": "Command; the arrow keys bring earlier ones back",
  });
  const clear = h("button", { type: "button", class: "quiet-button" }, "Clear");
  const form = h("form", { class: "explain-form" }, h("label", { class: "db" }, h("span", {}, "db"), db), line, h("button", { type: "submit" }, "Run"), clear);
  const log = h("div", { class: "command-log", role: "log", tabindex: "0", "aria-label": "Replies" });
  body.append(form, log);
  const said: string[] = [];
  // Where the arrow keys stand, and what was being written before.
  let at = 0;
  let draft = "";
  let running = false;

  const show = (prompt: string, lines: string[], bad: boolean): void => {
    const reply = h("pre", { class: bad ? "bad" : "" }, lines.join("\n"));
    log.append(h("div", { class: "command-entry" }, h("div", { class: "command-said" }, prompt), reply));
    while (log.children.length > MOST_REPLIES) log.firstElementChild?.remove();
    log.scrollTop = log.scrollHeight;
  };
  const run = async (text: string, number: number): Promise<void> => {
    const prompt = `${number === 0 ? "" : `[${number}]`}> ${text}`;
    running = true;
    setText(about, "running");
    try {
      const answer = await get<CommandAnswer>("command", { db: number, line: text });
      const lines = printed(answer.reply);
      show(prompt, answer.is_cut ? [...lines, "(cut: not all of the reply is shown)"] : lines, answer.reply.type === "error");
    } catch (error) {
      show(prompt, [error instanceof Refused ? `(refused) ${error.message}` : "(error) the server does not answer"], true);
    }
    running = false;
    setText(about, "commands that only read");
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = line.value.trim();
    // The one before is answered first.
    if (text === "" || running) return;
    if (said.at(-1) !== text) said.push(text);
    if (said.length > MOST_LINES) said.shift();
    [at, draft, line.value] = [said.length, "", ""];
    void run(text, Number(db.value) || 0);
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
