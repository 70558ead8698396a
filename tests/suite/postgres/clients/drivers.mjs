// node-postgres with its cursors, streams and copies over a thousand log rows: one line for each operation and what came of it, as
// answers.py prints them.
//
// usage: drivers.mjs PORT USER MICROSECONDS

import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import process from 'node:process'

// The packages are in the folder where this runs, not beside this file.
const require = createRequire(path.join(process.cwd(), 'package.json'))
const pg = require('pg')
const Cursor = require('pg-cursor')
const QueryStream = require('pg-query-stream')
const { to: copyTo } = require('pg-copy-streams')
const release = (name) => JSON.parse(fs.readFileSync(`node_modules/${name}/package.json`, 'utf8')).version

const [port, user, first] = process.argv.slice(2)
const place = { host: '127.0.0.1', port: Number(port), user, database: 'platform' }
const BASE = new Date(Number(first) / 1000)
const ID = '018f6f1e-7f6a-7c3e-9d5b-000000000003'
const ALL = 'SELECT * FROM logs ORDER BY ts LIMIT 4'
// More pairs than anybody counts in a test's time.
const ENDLESS = 'WITH few AS (SELECT message FROM logs LIMIT 50) SELECT count(*) FROM few a, few b, few c, few d, few e WHERE a.message || b.message || c.message < d.message || e.message'

// Times count milliseconds from the first row.
function plain(value) {
  if (value instanceof Date) return `+${value - BASE} ms`
  if (Buffer.isBuffer(value)) return value.toString()
  if (Array.isArray(value)) return value.map(plain)
  if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]))
  return value === undefined ? null : value
}

async function table(client, version, operations) {
  for (const [operation, work] of Object.entries(operations)) {
    let value
    try {
      value = await work()
    } catch (error) {
      value = error.code ? `error ${error.code}` : `error ${error.name}: ${error.message}`
    }
    process.stdout.write([client, version, operation, JSON.stringify(plain(value))].join('\t') + '\n')
  }
}

async function connected(work, way) {
  const client = new pg.Client({ ...place, ...way })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

const rows = (text, values, way) => connected(async (client) => (await client.query(text, values)).rows, way)
const gathered = async (stream) => {
  const parts = []
  for await (const part of stream) parts.push(part)
  return parts
}

await table('pg', release('pg'), {
  select: () => rows(ALL),
  'types and headers': () =>
    connected(async (client) => {
      const text = "SELECT *, count(*), max(ts) - min(ts), upper(level), 1.5::float8, 2::int, true, ARRAY['a'] FROM logs GROUP BY 1, 2, 3, 4, 5, 6, 7 LIMIT 1"
      return (await client.query(text)).fields.map((field) => [field.name, field.dataTypeID])
    }),
  parameters: () => rows('SELECT message FROM logs WHERE level = $1 AND flux_id = $2 AND ts >= $3', ['error', ID, BASE]),
  'list of texts': () => rows('SELECT count(*) FROM logs WHERE level = ANY($1)', [['info', 'debug']]),
  'list of numbers': () => rows('SELECT count(*) FROM logs WHERE length(message) = ANY($1::int[])', [[5, 6]]),
  'list of ids': () => rows('SELECT count(*) FROM logs WHERE flux_id = ANY($1)', [[ID]]),
  'list as an answer': () => rows("SELECT array_agg(level ORDER BY ts) AS levels FROM logs WHERE message LIKE 'row 1_'"),
  interval: () => rows('SELECT count(*) FROM logs WHERE ts > now() - $1::interval', ['1 day']),
  'interval as an answer': () => rows('SELECT max(ts) - min(ts) AS took FROM logs'),
  'prepared by name': () =>
    connected(async (client) => {
      const asked = { name: 'of a level', text: 'SELECT count(*) FROM logs WHERE level = $1' }
      const answers = []
      for (const level of ['info', 'error', 'debug']) answers.push((await client.query({ ...asked, values: [level] })).rows[0].count)
      return answers
    }),
  'rows as arrays': () => connected(async (client) => (await client.query({ text: 'SELECT 1::int, 2::int', rowMode: 'array' })).rows),
  'several statements': () => connected(async (client) => (await client.query('SELECT 1::int AS a; SELECT 2::int AS b')).map((answer) => answer.rows)),
  pool: async () => {
    const pool = new pg.Pool({ ...place, max: 2 })
    const answers = await Promise.all([1, 2, 3, 4].map(() => pool.query('SELECT count(*) FROM logs')))
    await pool.end()
    return answers.map((answer) => answer.rows[0].count)
  },
  transaction: () =>
    connected(async (client) => {
      await client.query('BEGIN')
      await client.query('SAVEPOINT a')
      const failed = await client.query('SELECT levl FROM logs').catch((error) => error.code)
      const aborted = await client.query('SELECT 1').catch((error) => error.code)
      await client.query('ROLLBACK TO SAVEPOINT a')
      const after = (await client.query('SELECT 1::int AS one')).rows
      await client.query('COMMIT')
      return [failed, aborted, after]
    }),
  statement_timeout: () => rows(ENDLESS, [], { statement_timeout: 200 }),
  insert: () => rows("INSERT INTO logs (level) VALUES ('x')"),
  error: () =>
    connected((client) => client.query('SELECT levl FROM logs').catch((error) => [error.severity, error.code, error.position])),
})
await table('pg-cursor', release('pg-cursor'), {
  read: () =>
    connected(async (client) => {
      const cursor = client.query(new Cursor('SELECT message FROM logs WHERE level = $1 ORDER BY ts', ['info']))
      const [two, more] = [await cursor.read(2), await cursor.read(10_000)]
      await cursor.close()
      return [two, more.length, (await client.query('SELECT 1::int AS one')).rows]
    }),
  'closed before its end': () =>
    connected(async (client) => {
      const cursor = client.query(new Cursor('SELECT message FROM logs'))
      const rows = await cursor.read(3)
      await cursor.close()
      return [rows.length, (await client.query('SELECT 1::int AS one')).rows]
    }),
})
await table('pg-query-stream', release('pg-query-stream'), {
  stream: () =>
    connected(async (client) => {
      const stream = client.query(new QueryStream('SELECT message, level FROM logs ORDER BY ts', [], { batchSize: 7 }))
      const rows = await gathered(stream)
      return [rows.length, rows[0], rows.at(-1)]
    }),
})
await table('pg-copy-streams', release('pg-copy-streams'), {
  text: () =>
    connected(async (client) => Buffer.concat(await gathered(client.query(copyTo("COPY (SELECT message FROM logs WHERE message LIKE 'odd%' ORDER BY ts) TO STDOUT"))))),
  csv: () => connected(async (client) => Buffer.concat(await gathered(client.query(copyTo('COPY logs (level) TO STDOUT WITH CSV HEADER')))).length),
  error: () => connected(async (client) => gathered(client.query(copyTo('COPY (SELECT levl FROM logs) TO STDOUT')))),
})
