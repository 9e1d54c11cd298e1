// A clock that stands still until a test moves it on, in the place of `Date.now` and of the timers of the page.

interface Timer {
  at: number;
  /** `null`: only once. */
  every: number | null;
  run: () => void;
}

export class Clock {
  private now = 1_800_000_000_000;
  private last = 0;
  private readonly timers = new Map<number, Timer>();

  install(): void {
    const add = (repeats: boolean) => (run: () => void, ms = 0): number => {
      this.timers.set(++this.last, { at: this.now + ms, every: repeats ? ms : null, run });
      return this.last;
    };
    const clear = (id: number | undefined): void => {
      if (id !== undefined) this.timers.delete(id);
    };
    Object.assign(globalThis, { setTimeout: add(false), setInterval: add(true), clearTimeout: clear, clearInterval: clear });
    Date.now = () => this.now;
  }

  /** Forgets all timers. */
  reset(): void {
    this.timers.clear();
  }

  /** Moves on by `ms`; what a timer begins goes on as far as it can before the next one. */
  async pass(ms: number): Promise<void> {
    const end = this.now + ms;
    await settle();
    for (;;) {
      const due = [...this.timers].filter(([, timer]) => timer.at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
      if (due === undefined) break;
      const [id, timer] = due;
      this.now = timer.at;
      if (timer.every === null) this.timers.delete(id);
      else timer.at += timer.every;
      timer.run();
      await settle();
    }
    this.now = end;
  }
}

/** Lets promises that can go on do so. */
export async function settle(): Promise<void> {
  for (let round = 0; round < 5; round++) await new Promise((resolve) => setImmediate(resolve));
}
