// kafkajs: log in, write a record and read it. Run with NODE_PATH at its node_modules.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const { bootstrap, mechanism, username, password, topic } = JSON.parse(process.argv[2])
const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  sasl: { mechanism: mechanism.toLowerCase(), username, password },
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
