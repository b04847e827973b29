// kafkajs: connect or log in, write a record and read it. Run with NODE_PATH at its node_modules.
'use strict'

const { readFileSync } = require('fs')
const { Kafka, logLevel } = require('kafkajs')

// With `token` instead of a user, for OAUTHBEARER; with `ssl`, the paths of ca, cert and key.
const { bootstrap, mechanism, username, password, token, ssl, topic } = JSON.parse(process.argv[2])
const read = files => Object.fromEntries(Object.entries(files).map(([key, path]) => [key, readFileSync(path)]))
const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  ssl: ssl && read(ssl),
  sasl: mechanism && {
    mechanism: mechanism.toLowerCase(),
    ...(token ? { oauthBearerProvider: async () => ({ value: token }) } : { username, password }),
  },
  retry: { initialRetryTime: 50, retries: 3 },
})

const run = async () => {
  const producer = kafka.producer({ createPartitioner: require('kafkajs').Partitioners.DefaultPartitioner })
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'kafkajs' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `${topic}-kafkajs` })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const value = await new Promise(resolve =>
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }))
  await consumer.disconnect()
  return value
}

run().then(
  value => console.log(JSON.stringify({ value })),
  error => console.log(JSON.stringify({ error: error.name, detail: error.message })),
).finally(() => process.exit(0))
