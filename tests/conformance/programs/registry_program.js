// The registry client of kafkajs. Run with NODE_PATH at its node_modules, and the registry's URL.
// Standard input has a list of actions, and standard output gets the list of their results.
'use strict'

const fs = require('node:fs')
const { SchemaRegistry } = require('@kafkajs/confluent-schema-registry')

const registry = new SchemaRegistry({ host: process.argv[2] })

const actions = {
  register: async ({ type, schema, subject }) =>
    (await registry.register({ type, schema }, { subject })).id,
  encode: async ({ subject, value }) => {
    const id = await registry.getLatestSchemaId(subject)
    return (await registry.encode(id, value)).toString('hex')
  },
  decode: async ({ data }) => registry.decode(Buffer.from(data, 'hex')),
}

const main = async () => {
  const results = []
  for (const action of JSON.parse(fs.readFileSync(0))) results.push(await actions[action.do](action))
  process.stdout.write(JSON.stringify(results))
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
