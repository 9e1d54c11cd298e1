// Build of the dashboard: few files with stable names, so that the server can embed them, and nothing
// inline, so that the strictest Content-Security-Policy holds.
import { defineConfig } from "vite";
import { apiPage } from "./api-page.ts";
import { openapi } from "./openapi.ts";

/** Where `npm run dev` finds the API: a running server, or the mock. */
const API = process.env.TERRACE_URL ?? "http://127.0.0.1:6390";

export default defineConfig({
  base: "./",
  plugins: [
    {
      name: "openapi",
      generateBundle() {
        const document = openapi();
        this.emitFile({ type: "asset", fileName: "openapi.json", source: document });
        this.emitFile({ type: "asset", fileName: "api.html", source: apiPage(JSON.parse(document)) });
      },
    },
  ],
  build: {
    // Inside the crate that embeds it.
    outDir: "../crates/server/dashboard",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {
      output: { entryFileNames: "app.js", assetFileNames: "app.[ext]" },
    },
  },
  server: { proxy: { "/api": { target: API, changeOrigin: true } } },
});
