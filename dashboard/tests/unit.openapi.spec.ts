// The OpenAPI document, and the page that is made of it: they are whole, and what the server embeds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { apiPage } from "../api-page.ts";
import { committed, openapi } from "../openapi.ts";

test("the document is valid OpenAPI 3.1, all that it refers to is there, and it is the one that is served", async () => {
  const text = openapi();
  assert.equal(text, committed("openapi.json"), "run `npm run build` in dashboard/ and commit crates/server/dashboard/");
  const document = JSON.parse(text);
  const told = await new Validator().validate(structuredClone(document));
  assert.ok(told.valid, JSON.stringify(told.errors));
  const names = [...text.matchAll(/"#\/components\/schemas\/(\w+)"/g)].map((found) => found[1]!);
  assert.ok(names.length > 20);
  for (const name of names) assert.ok(name in document.components.schemas, name);
  const ids = Object.values<{ get: { operationId: string } }>(document.paths).map((path) => path.get.operationId);
  assert.equal(new Set(ids).size, ids.length);
});

test("the page for people names every endpoint, parameter, type and field, leads to each, and is the one that is served", () => {
  const text = openapi();
  const page = apiPage(JSON.parse(text));
  assert.equal(page, committed("api.html"), "run `npm run build` in dashboard/ and commit crates/server/dashboard/");
  const { paths, components } = JSON.parse(text) as Parameters<typeof apiPage>[0];
  for (const [path, { get }] of Object.entries(paths)) {
    assert.ok(page.includes(`GET ${path}<`), path);
    for (const { name } of get.parameters ?? []) assert.ok(page.includes(`<li><code>${name}</code>`), `${path} ${name}`);
  }
  for (const [name, schema] of Object.entries(components.schemas)) {
    assert.ok(page.includes(`<h3 id="${name}">`), name);
    for (const field of Object.keys(schema.properties ?? {})) assert.ok(page.includes(`<td><code>${field}</code></td>`), `${name}.${field}`);
  }
  const ids = new Set([...page.matchAll(/ id="([^"]*)"/g)].map((found) => found[1]!));
  const links = [...page.matchAll(/href="#([^"]*)"/g)].map((found) => found[1]!);
  assert.ok(links.length > 20);
  for (const link of links) assert.ok(ids.has(link), link);
  assert.doesNotMatch(page, /<script|<style| style=| on\w+=/);
});

test("what a text says is no markup of the page", () => {
  const schema = { type: "object", description: '<b>"&', properties: { x: { enum: ["<i>"], description: "<script>" } } };
  const made = apiPage({ info: { title: "<t>", description: "" }, paths: {}, components: { schemas: { A: schema } } });
  assert.doesNotMatch(made, /<b>|<i>|<script>|<t>/);
  assert.ok(made.includes("&#60;b&#62;&#34;&#38;"));
});
