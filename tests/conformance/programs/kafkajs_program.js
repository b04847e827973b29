// kafkajs. Run with NODE_PATH at its node_modules; the actions are those of the programs in Python.
'use strict'

const {
  CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel,
} = require('kafkajs')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const report = event => process.stdout.write(JSON.stringify(event) + '\n')
const text = data => (data === null || data === undefined ? null : data.toString())
const codes = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }

// Calls `read` until it returns the expected value, because brokers apply changes later.
const eventually = async (read, expected) => {
  const deadline = Date.now() + 40000
  for (;;) {
    const found = await read()
    if (found === expected || Date.now() > deadline) return found
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

const connect = bootstrap => new Kafka({
  brokers: [bootstrap],
  clientId: 'kafkajs-program',
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 4 },
})

const codeOf = async call => {
  try {
    await call()
  } catch (error) {
    const inner = (error.errors && error.errors[0]) || error.cause || error
    return inner.code
  }
  return 0
}

const withAdmin = async (bootstrap, work) => {
  const admin = connect(bootstrap).admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

const admin = ({ bootstrap, topic }) => withAdmin(bootstrap, async client => {
  const partitions = async () => {
    const { topics } = await client.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  }
  const retention = async () => {
    const { resources } = await client.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }],
    })
    return resources[0].configEntries[0].configValue
  }
  const create = () => client.createTopics({
    topics: [{
      topic, numPartitions: 2, replicationFactor: 1,
      configEntries: [{ name: 'retention.ms', value: '60000' }],
    }],
  })
  if (!(await create())) throw new Error('the topic exists already')
  const listed = async () => (await client.listTopics()).includes(topic)
  const result = { partitions: await eventually(partitions, 2) }
  result.config = await eventually(retention, '60000')
  result.listed = await eventually(listed, true)
  // kafkajs returns false for an existing topic, and throws for other errors.
  result.again = (await create()) ? 0 : 36
  await client.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  result.grown = await eventually(partitions, 4)
  await client.alterConfigs({
    validateOnly: false,
    resources: [{
      type: ConfigResourceTypes.TOPIC, name: topic,
      configEntries: [{ name: 'retention.ms', value: '120000' }],
    }],
  })
  result.altered = await eventually(retention, '120000')
  await client.deleteTopics({ topics: [topic] })
  result.left = await eventually(listed, false)
  result.unknown = await codeOf(() => client.deleteTopics({ topics: [topic] }))
  return result
})

const produce = async ({ bootstrap, topic, compression, records }) => {
  const producer = connect(bootstrap).producer({ allowAutoTopicCreation: false, idempotent: true })
  await producer.connect()
  const [response] = await producer.send({
    topic,
    acks: -1,
    compression: codes[compression],
    messages: records.map(each => ({
      key: each.key,
      value: each.value,
      partition: 0,
      timestamp: String(each.timestamp),
      headers: Object.fromEntries(each.headers),
    })),
  })
  await producer.disconnect()
  const first = Number(response.baseOffset)
  return { offsets: records.map((_, index) => first + index) }
}

const transactional = async (bootstrap, id) => {
  const producer = connect(bootstrap).producer({
    allowAutoTopicCreation: false, idempotent: true, maxInFlightRequests: 1, transactionalId: id,
  })
  await producer.connect()
  return producer
}

const transactions = async ({ bootstrap, topic, transactional_id: id, group, transactions: planned, count }) => {
  const producer = await transactional(bootstrap, id)
  for (const { values, offset, commits } of planned) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: values.map((value, partition) => ({ value, partition })) })
    await transaction.sendOffsets({
      consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }],
    })
    await (commits ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
  const read = []
  // By default, kafkajs returns committed records only.
  const consumer = await reading(bootstrap, topic, [[0, '0']], (partition, message) => {
    if (partition === 0) read.push(message.value.toString())
  })
  await until(() => read.length >= count)
  await consumer.disconnect()
  return { read: read.slice(-count) }
}

const fence = async ({ bootstrap, topic, transactional_id: id }) => {
  const messages = value => ({ topic, messages: [{ value, partition: 0 }] })
  const old = await transactional(bootstrap, id)
  const first = await old.transaction()
  await first.send(messages('old'))
  const successor = await transactional(bootstrap, id)
  const second = await successor.transaction()
  await second.send(messages('successor'))
  await second.commit()
  await successor.disconnect()
  let fenced = false
  try {
    await first.commit()
  } catch (error) {
    fenced = true
  }
  await old.disconnect()
  return { fenced }
}

// Returns a consumer with a unique group that starts at these offsets; `take` gets each message.
const reading = async (bootstrap, topic, starts, take, options = {}) => {
  const groupId = `kafkajs-${process.pid}-${Date.now()}`
  const consumer = connect(bootstrap).consumer({ groupId, maxWaitTimeInMs: 200, ...options })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  // The client joins again if the coordinator is not ready, so seek only after the join.
  const joined = new Promise(resolve => consumer.on(consumer.events.GROUP_JOIN, resolve))
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => take(partition, message),
  })
  await joined
  for (const [partition, offset] of starts) consumer.seek({ topic, partition, offset })
  return consumer
}

const until = async condition => {
  while (!condition()) await new Promise(resolve => setTimeout(resolve, 20))
}

const offsetAt = (client, topic, timestamp) => client.fetchTopicOffsetsByTimestamp(topic, timestamp)

const offsets = ({ bootstrap, topic, timestamps }) => withAdmin(bootstrap, async client => {
  const found = []
  for (const at of timestamps) found.push(Number((await offsetAt(client, topic, at))[0].offset))
  return { offsets: found }
})

const consume = async ({ bootstrap, topic, count, timestamp }) => {
  let start = '0'
  if (timestamp !== undefined) {
    start = await withAdmin(bootstrap, async client => (await offsetAt(client, topic, timestamp))[0].offset)
  }
  const records = []
  const consumer = await reading(bootstrap, topic, [[0, start]], (_, message) => {
    if (BigInt(message.offset) >= BigInt(start)) records.push(message)
  })
  await until(() => records.length >= count)
  await consumer.disconnect()
  return {
    records: records.slice(0, count).map(each => ({
      offset: Number(each.offset),
      key: text(each.key),
      value: text(each.value),
      timestamp: Number(each.timestamp),
      headers: Object.entries(each.headers).map(([name, value]) => [name, text(value)]),
    })),
  }
}

// Reads from several offsets; null is the first position. Each has its own consumer, because messages
// of a batch that was fetched before a seek may still arrive.
const visit = async ({ bootstrap, topic, isolation, visits }) => {
  const found = []
  for (const [start, count] of visits) {
    const records = []
    const starts = start === null ? [] : [[0, String(start)]]
    const take = (_, message) => {
      if (Number(message.offset) >= start) {
        records.push([Number(message.offset), Number(text(message.value).split(':')[0])])
      }
    }
    const options = { readUncommitted: isolation === 'read_uncommitted' }
    const consumer = await reading(bootstrap, topic, starts, take, options)
    await until(() => records.length >= count)
    await consumer.disconnect()
    found.push(records.slice(0, count))
  }
  return { visits: found }
}

const pause = async ({ bootstrap, topic, count }) => {
  const got = { 0: 0, 1: 0 }
  const groupId = `kafkajs-${process.pid}`
  const consumer = connect(bootstrap).consumer({ groupId, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const running = consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition }) => { got[partition] += 1 },
  })
  consumer.pause([{ topic, partitions: [0] }])
  await running
  await until(() => got[1] >= count)
  await new Promise(resolve => setTimeout(resolve, 300))
  const paused = { ...got }
  consumer.resume([{ topic, partitions: [0] }])
  await until(() => got[0] >= count)
  await consumer.disconnect()
  return { paused, resumed: got }
}

const errors = async ({ bootstrap, topic }) => {
  const producer = connect(bootstrap).producer({ retry: { retries: 0 } })
  await producer.connect()
  const tooLarge = await codeOf(() => producer.send({
    topic, messages: [{ value: 'x'.repeat(5000), partition: 0 }],
  }))
  await producer.send({ topic, messages: [{ value: 'first', partition: 0 }] })
  await producer.disconnect()
  // After an offset out of range, kafkajs resets to its default offset, that of the first record.
  const found = []
  const consumer = await reading(bootstrap, topic, [[0, '1000']], (_, message) => found.push(message))
  await until(() => found.length)
  await consumer.disconnect()
  return { too_large: tooLarge, out_of_range: text(found[0].value) }
}

const member = async ({ bootstrap, topic, group, session_timeout_ms }) => {
  const consumer = connect(bootstrap).consumer({
    groupId: group,
    sessionTimeout: session_timeout_ms,
    rebalanceTimeout: 5000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 100,
    retry: { initialRetryTime: 50, retries: 10 },
  })
  const { GROUP_JOIN, REBALANCING } = consumer.events
  consumer.on(GROUP_JOIN, ({ payload }) => {
    report({ partitions: (payload.memberAssignment[topic] || []).slice().sort((a, b) => a - b) })
  })
  consumer.on(REBALANCING, () => report({ partitions: [] }))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return
      await heartbeat()
      const offset = String(BigInt(batch.lastOffset()) + 1n)
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset }])
      report({ values: batch.messages.map(each => text(each.value)) })
    },
  })
  process.stdin.resume()
  await new Promise(resolve => process.stdin.on('end', resolve))
  await consumer.disconnect()
  process.exit(0)
}

const version = async () => ({ version: require('kafkajs/package.json').version })

const all = async ({ calls }) => {
  const results = []
  for (const [name, argument] of calls) results.push(await actions[name](argument))
  return { results }
}

const actions = {
  admin, all, produce, consume, offsets, visit, pause, errors, member, version,
  transactions, fence,
}
const [name, argument] = process.argv.slice(2)
actions[name](JSON.parse(argument)).then(
  result => {
    if (result) report(result)
    process.exit(0)
  },
  error => {
    process.stderr.write(`${error.stack}\n`)
    process.exit(1)
  },
)
