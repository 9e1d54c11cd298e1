// A client of the Redis protocol, as small as the tests need it: requests out, replies in, in order.
import { connect, type Socket } from "node:net";

export type Reply = string | number | null | Error | Reply[];

/** A reply at `at`, and where the next one begins; `null`: not all of it is there. */
export function parse(text: string, at: number): { reply: Reply; next: number } | null {
  const end = text.indexOf("\r\n", at);
  if (end < 0) return null;
  const line = text.slice(at + 1, end);
  let next = end + 2;
  switch (text[at]) {
    case "+": return { reply: line, next };
    case "-": return { reply: new Error(line), next };
    case ":": return { reply: Number(line), next };
    case "$": {
      if (line === "-1") return { reply: null, next };
      const length = Number(line);
      return text.length < next + length + 2 ? null : { reply: text.slice(next, next + length), next: next + length + 2 };
    }
    case "*": {
      const replies: Reply[] = [];
      for (let n = 0; n < Number(line); n++) {
        const one = parse(text, next);
        if (one === null) return null;
        replies.push(one.reply);
        next = one.next;
      }
      return { reply: replies, next };
    }
    default: throw new Error(`no reply: ${text.slice(at, at + 40)}`);
  }
}

export class Client {
  #socket: Socket;
  #text = "";
  #waiting: ((reply: Reply) => void)[] = [];
  readonly closed: Promise<void>;

  private constructor(socket: Socket) {
    this.#socket = socket;
    // A character is a byte.
    socket.setEncoding("latin1").setNoDelay(true);
    socket.on("data", (piece: string) => {
      this.#text += piece;
      let at = 0;
      for (let one = parse(this.#text, at); one !== null; one = at < this.#text.length ? parse(this.#text, at) : null) {
        at = one.next;
        this.#waiting.shift()?.(one.reply);
      }
      this.#text = this.#text.slice(at);
    });
    this.closed = new Promise((resolve) => socket.on("close", () => {
      for (const tell of this.#waiting.splice(0)) tell(new Error("the connection has ended"));
      resolve();
    }));
    socket.on("error", () => {});
  }

  static to(port: number): Promise<Client> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, "127.0.0.1", () => resolve(new Client(socket)));
      socket.once("error", reject);
    });
  }

  /** All of them at once; the first error ends it. */
  async pipe(requests: string[][]): Promise<Reply[]> {
    const text = requests.map((words) => `*${words.length}\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join("")}`);
    this.#socket.write(text.join(""), "latin1");
    const replies = await Promise.all(requests.map(() => new Promise<Reply>((tell) => this.#waiting.push(tell))));
    for (const reply of replies) if (reply instanceof Error) throw reply;
    return replies;
  }

  async call(...words: string[]): Promise<Reply> {
    return (await this.pipe([words]))[0]!;
  }

  close(): void {
    this.#socket.destroy();
  }
}
