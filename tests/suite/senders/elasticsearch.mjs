// An application that indexes documents with the client of Elasticsearch for JavaScript, and says for each of them the row that is to be stored.
//
// usage: elasticsearch.mjs URL DOCUMENTS (in a folder beside node_modules)

import { createRequire } from "node:module";
import process from "node:process";

const require = createRequire(`${process.cwd()}/`);
const { Client } = require("@elastic/elasticsearch");
const [node, count] = process.argv.slice(2);
const HOST = "node-elasticsearch";
const begin = Date.now() - 600_000;

const documents = Array.from({ length: Number(count) }, (_, number) => ({
  "@timestamp": new Date(begin + number).toISOString(), message: `line ${number} ä`, level: "warn", host: { name: HOST }, number, order: { lines: [{ article: 1 }] },
}));
for (const { message, number, ...document } of documents) {
  const attributes = { _index: "shop", "host.name": HOST, number, "order.lines": document.order.lines };
  const ts = document["@timestamp"].replace("Z", "000Z");
  console.log(JSON.stringify({ ts, entity_name: HOST, level: document.level, message, attributes }));
}
const client = new Client({ node });
await client.info();
const done = await client.helpers.bulk({ datasource: documents, onDocument: () => ({ create: { _index: "shop" } }), flushBytes: 1_000, concurrency: 4 });
if (done.successful !== documents.length || done.failed !== 0) throw new Error(JSON.stringify(done));
