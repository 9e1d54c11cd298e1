// The HTTP API as a page for people, made of the OpenAPI document. It has no script, and no style but the browser's.

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema | Schema[];
  enum?: unknown[];
  const?: unknown;
  oneOf?: Schema[];
  anyOf?: Schema[];
}

interface Operation {
  summary: string;
  parameters?: { name: string; description: string; required: boolean; schema: Schema }[];
  responses: Record<string, { content: Record<string, { schema: Schema }> }>;
}

export interface OpenApi {
  info: { title: string; description: string };
  paths: Record<string, { get: Operation }>;
  components: { schemas: Record<string, Schema> };
}

const escaped = (text: string): string => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** The name of a type, with a link to what is said of it. */
function typeName(schema: Schema): string {
  if (schema.$ref !== undefined) {
    const name = schema.$ref.split("/").at(-1)!;
    return `<a href="#${name}">${name}</a>`;
  }
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices !== undefined) return choices.map(typeName).join(" or ");
  if (schema.const !== undefined) return `<code>${escaped(JSON.stringify(schema.const))}</code>`;
  if (schema.enum !== undefined) return schema.enum.map((value) => `<code>${escaped(JSON.stringify(value))}</code>`).join(" or ");
  if (Array.isArray(schema.items)) return `[${schema.items.map(typeName).join(", ")}]`;
  if (schema.items !== undefined) return `list of ${typeName(schema.items)}`;
  return [schema.type ?? "anything"].flat().join(" or ");
}

function endpoint([path, { get }]: [string, { get: Operation }]): string {
  const parameters = get.parameters ?? [];
  const shown = `GET ${escaped(path)}`;
  const name = parameters.some((one) => one.required) ? shown : `<a href=".${escaped(path)}">${shown}</a>`;
  const [media, { schema }] = Object.entries(get.responses["200"]!.content)[0]!;
  const answer = media === "application/json" ? typeName(schema) : escaped(media);
  const rows = parameters.map((one) => `<li><code>${escaped(one.name)}</code> (${typeName(one.schema)}${one.required ? ", needed" : ""}): ${escaped(one.description)}</li>`);
  return `<dt><code>${name}</code></dt>\n<dd>${escaped(get.summary)} Answer: ${answer}.${rows.length === 0 ? "" : `<ul>${rows.join("")}</ul>`}</dd>`;
}

function typeSection([name, schema]: [string, Schema]): string {
  const fields = Object.entries(schema.properties ?? {}).map(([field, of]) => {
    const is_optional = !(schema.required ?? []).includes(field);
    return `<tr><td><code>${escaped(field)}</code></td><td>${typeName(of)}${is_optional ? ", or left out" : ""}</td><td>${escaped(of.description ?? "")}</td></tr>`;
  });
  const head = `<h3 id="${name}">${name}</h3>\n<p>${escaped(schema.description ?? "")}</p>`;
  if (fields.length === 0) return `${head}\n<p>${typeName(schema)}</p>`;
  return `${head}\n<table><thead><tr><th>Field</th><th>Type</th><th>Meaning</th></tr></thead><tbody>\n${fields.join("\n")}\n</tbody></table>`;
}

/** The page as text. */
export function apiPage(document: OpenApi): string {
  const { info, paths, components } = document;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<title>${escaped(info.title)}: HTTP API</title>
<link rel="icon" type="image/svg+xml" href="./favicon.svg" />
</head>
<body>
<main>
<h1>${escaped(info.title)}: HTTP API</h1>
<p>${escaped(info.description)} <a href="./">The dashboard</a>; <a href="./openapi.json">the same for programs</a>, by OpenAPI 3.1.</p>
<h2>Endpoints</h2>
<dl>
${Object.entries(paths).map(endpoint).join("\n")}
</dl>
<h2>Types</h2>
${Object.entries(components.schemas).map(typeSection).join("\n")}
</main>
</body>
</html>
`;
}
