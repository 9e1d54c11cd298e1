// The page tests against `terrace serve` under a load: npm run test:real -- path/to/terrace
// With TERRACE_SCREENSHOTS=folder also dashboard.png and dashboard-dark.png of it, for the README.
import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { launch } from "./browser.ts";
import { fill, load, serve, stop } from "./load.ts";

const SHOT = { width: 1440, height: 1120 };

const program = process.argv[2];
if (program === undefined) throw new Error("which program?");

async function shots(url: string, folder: string): Promise<void> {
  const browser = await launch();
  for (const [scheme, name] of [["light", "dashboard"], ["dark", "dashboard-dark"]] as const) {
    const page = await browser.newPage({ viewport: SHOT, colorScheme: scheme });
    await page.goto(url);
    await page.waitForSelector('.state[data-state="live"]');
    await page.waitForTimeout(4_000);
    await page.screenshot({ path: `${folder}/${name}.png` });
    await page.close();
  }
  await browser.close();
}

function tests(env: Record<string, string>): Promise<number> {
  const words = ["--import", "tsx", "--test", "--test-concurrency=1", "--test-timeout=1800000", "tests/page.spec.ts", "tests/info.real.ts"];
  const child = spawn(process.execPath, words, { env: { ...process.env, ...env }, stdio: "inherit" });
  return new Promise((ended) => child.on("exit", (code) => ended(code ?? 1)));
}

const served = await serve(resolve(process.env.INIT_CWD ?? ".", program));
let code = 1;
try {
  await fill(served.port);
  const clients = await load(served.port);
  const folder = process.env.TERRACE_SCREENSHOTS;
  if (folder !== undefined) {
    // The charts should have something to show.
    await new Promise((resolve) => setTimeout(resolve, 60_000));
    await shots(served.url, resolve(process.env.INIT_CWD ?? ".", folder));
  }
  code = await tests({ TERRACE_URL: served.url, TERRACE_PORT: String(served.port) });
  await clients.end();
  await stop(served);
} finally {
  if (served.child.exitCode === null) served.child.kill("SIGKILL");
}
process.exit(code);
