// The HTTP API as an OpenAPI 3.1 document: the paths are listed here, the schemas and their descriptions are those
// of `src/api.ts`.
import { readFileSync } from "node:fs";
import { createGenerator, type Schema } from "ts-json-schema-generator";

const API = new URL("src/api.ts", import.meta.url).pathname;

interface Parameter {
  name: string;
  description: string;
  required?: boolean;
  schema: Schema;
}

interface Endpoint {
  path: string;
  summary: string;
  /** What it answers: a type of `api.ts`, or the media type of text. */
  answer: { type: string; isList?: boolean; orNull?: boolean } | { text: string };
  parameters?: Parameter[];
  /** It can answer 404. */
  canMiss?: boolean;
}

const integer: Schema = { type: "integer", minimum: 0 };
const string: Schema = { type: "string" };
const family: Parameter = { name: "family", description: "Column family.", required: true, schema: string };

const ENDPOINTS: Endpoint[] = [
  { path: "/healthz", summary: "The process runs. Needs no login.", answer: { text: "text/plain" } },
  { path: "/readyz", summary: "Writes are taken; 503 says why not. Needs no login.", answer: { text: "text/plain" } },
  { path: "/metrics", summary: "Metrics in the text format of OpenMetrics, for Prometheus.", answer: { text: "application/openmetrics-text" } },
  { path: "/api/v1", summary: "The list of endpoints.", answer: { type: "Index" } },
  { path: "/api/v1/openapi.json", summary: "This document.", answer: { text: "application/json" } },
  { path: "/api/v1/summary", summary: "Rates, latencies and memory of the last second.", answer: { type: "Summary" } },
  { path: "/api/v1/shape", summary: "Families, levels and SSTs.", answer: { type: "Shape" } },
  { path: "/api/v1/jobs", summary: "Flushes and compactions that run.", answer: { type: "Job", isList: true } },
  { path: "/api/v1/memory", summary: "Pools of the memory budget.", answer: { type: "Memory" } },
  { path: "/api/v1/live", summary: "One event of the stream.", answer: { type: "Live" } },
  {
    path: "/api/v1/stream",
    summary: "Server-sent events `live`, whose data is a `Live`, about once a second.",
    answer: { text: "text/event-stream" },
  },
  {
    path: "/api/v1/history",
    summary: "A sample for each of the last seconds, or for each half minute of the last day; starts and changed options.",
    answer: { type: "History" },
    parameters: [{ name: "seconds", description: "How far back; 600 if it is not given. More than 600 give steps of 30 s.", schema: integer }],
  },
  {
    path: "/api/v1/filters",
    summary: "Filter units of a family's SSTs, by partition.",
    answer: { type: "Filters" },
    parameters: [family, { name: "file", description: "Only this SST.", schema: integer }],
    canMiss: true,
  },
  {
    path: "/api/v1/model",
    summary: "The learned index of an SST; `null` if it has none.",
    answer: { type: "Model", orNull: true },
    parameters: [family, { name: "file", description: "The SST's number.", required: true, schema: integer }],
    canMiss: true,
  },
  {
    path: "/api/v1/explain",
    summary: "A lookup of a key, step by step. Either `key` or `hex` is needed.",
    answer: { type: "Explanation" },
    parameters: [
      { name: "db", description: "Database; 0 if it is not given.", schema: integer },
      { name: "key", description: "The key as text.", schema: string },
      { name: "hex", description: "The key, two hexadecimal digits a byte.", schema: string },
    ],
  },
  {
    path: "/api/v1/keys",
    summary: "Keys of a database by prefix, in order, at most 100.",
    answer: { type: "KeyList" },
    parameters: [
      { name: "db", description: "Database; 0 if it is not given.", schema: integer },
      { name: "prefix", description: "What the keys begin with, as text.", schema: string },
      { name: "hex", description: "What they begin with, two hexadecimal digits a byte.", schema: string },
      { name: "after", description: "Only keys behind this one, two hexadecimal digits a byte.", schema: string },
    ],
  },
  {
    path: "/api/v1/value",
    summary: "What is under a key: the first bytes or elements. Either `key` or `hex` is needed.",
    answer: { type: "KeyValue" },
    parameters: [
      { name: "db", description: "Database; 0 if it is not given.", schema: integer },
      { name: "key", description: "The key as text.", schema: string },
      { name: "hex", description: "The key, two hexadecimal digits a byte.", schema: string },
    ],
  },
  {
    path: "/api/v1/command",
    summary: "The reply to a command that only reads. Any other command is refused with 403 and does nothing.",
    answer: { type: "CommandAnswer" },
    parameters: [
      { name: "db", description: "Database; 0 if it is not given.", schema: integer },
      { name: "line", description: "The command with its arguments, quoted as for redis-cli; at most 4,096 bytes.", required: true, schema: string },
    ],
  },
  { path: "/api/v1/hotkeys", summary: "Keys that are read and written most.", answer: { type: "HotKeys" } },
  { path: "/api/v1/slowlog", summary: "The newest entries of the slow log, at most 128.", answer: { type: "SlowLog" } },
  { path: "/api/v1/latency", summary: "Latencies by command.", answer: { type: "CommandLatencies" } },
  {
    path: "/api/v1/cluster",
    summary: "Nodes and shards; `null` without a cluster. Every request asks all nodes.",
    answer: { type: "Cluster", orNull: true },
  },
  {
    path: "/api/v1/config",
    summary: "All options. Needs a user with the category `admin`.",
    answer: { type: "Config" },
  },
];

/** Other answers, by their status. */
const REFUSALS: Record<string, string> = {
  "400": "A parameter is wrong.",
  "401": "A login is needed (HTTP Basic).",
  "403": "The user may not see this, the command does not only read, or a page of another site asks.",
  "404": "There is no such family or file.",
  "500": "The server or its device has failed here: the reason is in the answer.",
  "503": "Not now: the reason is in the answer.",
};

/** The document as text. */
export function openapi(): string {
  const generator = createGenerator({ path: API, type: "*", skipTypeCheck: true, additionalProperties: false });
  const { definitions } = generator.createSchema("*");
  const schemas = JSON.parse(JSON.stringify(definitions).replaceAll("#/definitions/", "#/components/schemas/"));
  const named = (name: string): Schema => {
    if (!(name in schemas)) throw new Error(`api.ts has no ${name}`);
    return { $ref: `#/components/schemas/${name}` };
  };
  const content = (answer: Endpoint["answer"]) => {
    if ("text" in answer) return { [answer.text]: { schema: answer.text === "application/json" ? {} : string } };
    const one = named(answer.type);
    const whole = answer.isList ? { type: "array", items: one } : one;
    return { "application/json": { schema: answer.orNull ? { oneOf: [whole, { type: "null" }] } : whole } };
  };
  const refusal = (status: string) => {
    const description = REFUSALS[status];
    return [status, { description, content: { "application/json": { schema: named("ApiError") } } }];
  };
  const operation = ({ path, summary, answer, parameters, canMiss }: Endpoint) => {
    const isFree = path.endsWith("z");
    const refusals = isFree ? [] : ["401", "403", "500", "503"];
    if (path === "/readyz") refusals.push("503");
    if (parameters) refusals.push("400");
    if (canMiss) refusals.push("404");
    const responses = { "200": { description: "It worked.", content: content(answer) } };
    return {
      summary,
      operationId: path.replace(/^\/(api\/v1\/?)?/, "").replace(/\W/g, "_") || "index",
      ...(parameters && { parameters: parameters.map((one) => ({ in: "query", required: false, ...one })) }),
      responses: { ...responses, ...Object.fromEntries(refusals.sort().map(refusal)) },
      ...(isFree && { security: [] }),
    };
  };
  const document = {
    openapi: "3.1.0",
    info: {
      title: "Terrace",
      version: "1",
      description: "What a Terrace server tells of itself over HTTP. Nothing here changes anything.",
      license: { name: "MIT OR Apache-2.0", identifier: "MIT OR Apache-2.0" },
    },
    security: [{ login: [] }, {}],
    paths: Object.fromEntries(ENDPOINTS.map((endpoint) => [endpoint.path, { get: operation(endpoint) }])),
    components: { schemas, securitySchemes: { login: { type: "http", scheme: "basic" } } },
  };
  return `${JSON.stringify(document, null, 1)}\n`;
}

/** A file that is committed, inside the crate that serves it. */
export function committed(name: string): string {
  return readFileSync(new URL(`../crates/server/dashboard/${name}`, import.meta.url), "utf8");
}
