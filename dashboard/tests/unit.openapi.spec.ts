// The OpenAPI document: it is valid, and it is what the server embeds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { committed, openapi } from "../openapi.ts";

test("the document is valid OpenAPI 3.1, all that it refers to is there, and it is the one that is served", async () => {
  const text = openapi();
  assert.equal(text, committed(), "run `npm run build` in dashboard/ and commit crates/server/dashboard/");
  const document = JSON.parse(text);
  const told = await new Validator().validate(structuredClone(document));
  assert.ok(told.valid, JSON.stringify(told.errors));
  const names = [...text.matchAll(/"#\/components\/schemas\/(\w+)"/g)].map((found) => found[1]!);
  assert.ok(names.length > 20);
  for (const name of names) assert.ok(name in document.components.schemas, name);
  const ids = Object.values<{ get: { operationId: string } }>(document.paths).map((path) => path.get.operationId);
  assert.equal(new Set(ids).size, ids.length);
});
