// Screenshots of the page in all its forms, for looking at: npm run shots -- [folder]
// Of a running server if TERRACE_URL says where, else of the mock.
import { mkdirSync } from "node:fs";
import { startMock } from "../mock/server.ts";
import { launch } from "./browser.ts";

const folder = process.argv[2] ?? "screenshots";
mkdirSync(folder, { recursive: true });
const outside = process.env.TERRACE_URL;
const mock = outside === undefined ? await startMock({ scenario: (process.env.SCENARIO as "live") ?? "live" }) : null;
const url = outside ?? mock!.url;
const browser = await launch();
const forms = [
  { name: "laptop-light", width: 1440, height: 900, scheme: "light", scale: 1 },
  { name: "laptop-dark", width: 1440, height: 900, scheme: "dark", scale: 1 },
  { name: "phone-light", width: 390, height: 844, scheme: "light", scale: 2 },
  { name: "phone-dark", width: 390, height: 844, scheme: "dark", scale: 2 },
] as const;
for (const form of forms.filter((one) => process.env.ONLY === undefined || one.name.includes(process.env.ONLY))) {
  const page = await browser.newPage({ viewport: form, colorScheme: form.scheme, deviceScaleFactor: form.scale });
  page.on("console", (message) => message.type() === "error" && console.error(form.name, message.text()));
  page.on("pageerror", (error) => console.error(form.name, error));
  await page.goto(url);
  await page.waitForSelector('[data-state="live"]');
  await page.waitForTimeout(2600);
  await page.screenshot({ path: `${folder}/${form.name}.png` });
  const key = page.locator(".top-keys button").first();
  if (await key.count() > 0) {
    await key.click();
    await page.waitForSelector(".way-step");
  }
  const stage = page.locator(".stage");
  await stage.scrollIntoViewIfNeeded();
  await stage.focus();
  for (const press of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"]) await stage.press(press);
  await page.waitForTimeout(900);
  await page.evaluate(() => (document.activeElement as HTMLElement).blur());
  // Parts that wait until they are on the screen begin when a reader scrolls there.
  await page.mouse.wheel(0, 4000);
  await page.waitForTimeout(900);
  await page.mouse.wheel(0, -9000);
  await page.waitForTimeout(600);
  await page.screenshot({ path: `${folder}/${form.name}-full.png`, fullPage: true });
  await page.close();
}
await browser.close();
await mock?.close();
