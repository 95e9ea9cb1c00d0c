// KafkaJS: producer, consumer groups, transactions, admin.
import assert from 'node:assert/strict'
import kafkajs from 'kafkajs'
import { run, unique, until } from './checks.mjs'

const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = kafkajs
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

const connect = bootstrap => new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING })

async function withClients (bootstrap, body) {
  const kafka = connect(bootstrap)
  const open = []
  const keep = async client => {
    open.push(client)
    await client.connect()
    return client
  }
  const admin = await keep(kafka.admin())
  const topic = unique('topic')
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
  try {
    await body({ kafka, admin, topic, keep })
  } finally {
    await Promise.all(open.reverse().map(client => client.disconnect()))
  }
}

const messages = (count, prefix = 'v') =>
  Array.from({ length: count }, (_, number) => ({ key: `${number}`, value: `${prefix}${number}`, partition: number % 2 }))

async function collect ({ kafka, keep }, topic, count, options = {}) {
  const consumer = await keep(kafka.consumer({ groupId: unique('group'), allowAutoTopicCreation: false, maxWaitTimeInMs: 250, ...options }))
  const values = []
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => { values.push(message.value.toString()) } })
  await until(`${count} messages, found ${values.length}`, () => values.length >= count)
  return values
}

await run({
  'produce and consume, gzip': bootstrap => withClients(bootstrap, async clients => {
    const producer = await clients.keep(clients.kafka.producer())
    await producer.send({ topic: clients.topic, messages: messages(20) })
    await producer.send({ topic: clients.topic, messages: messages(20, 'z'), compression: CompressionTypes.GZIP })
    assert.equal(new Set(await collect(clients, clients.topic, 40)).size, 40)
  }),

  'idempotent producer': bootstrap => withClients(bootstrap, async clients => {
    const producer = await clients.keep(clients.kafka.producer({ idempotent: true, maxInFlightRequests: 1 }))
    for (let round = 0; round < 5; round++) {
      await producer.send({ topic: clients.topic, messages: messages(10, `r${round}-`) })
    }
    assert.equal(new Set(await collect(clients, clients.topic, 50)).size, 50)
  }),

  'consumer group: two members share, one leaves, offsets stay': bootstrap => withClients(bootstrap, async clients => {
    const { kafka, admin, topic, keep } = clients
    const producer = await keep(kafka.producer())
    const groupId = unique('group')
    const assigned = {}
    const values = []
    const member = async name => {
      const consumer = await keep(kafka.consumer({ groupId, sessionTimeout: 10_000, heartbeatInterval: 500, maxWaitTimeInMs: 250 }))
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { assigned[name] = payload.memberAssignment[topic] ?? [] })
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      await consumer.run({ autoCommitThreshold: 1, eachMessage: async ({ message }) => { values.push(message.value.toString()) } })
      return consumer
    }
    const first = await member('first')
    await until('the first has both partitions', () => assigned.first?.length === 2)
    const second = await member('second')
    await until('one partition each', () => assigned.first?.length === 1 && assigned.second?.length === 1)
    await producer.send({ topic, messages: messages(20) })
    await until('all messages', () => values.length === 20)
    await second.disconnect()
    await until('the first has both partitions again', () => assigned.first?.length === 2)
    await first.disconnect()
    const offsets = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.deepEqual(offsets[0].partitions.map(row => row.offset), ['10', '10'])
    await producer.send({ topic, messages: messages(2, 'later') })
    await member('third')
    await until('the later messages', () => values.length >= 22)
    assert.deepEqual(values.slice(20).sort(), ['later0', 'later1'])
  }),

  'transactions: commit, abort, offsets': bootstrap => withClients(bootstrap, async clients => {
    const { kafka, admin, topic, keep } = clients
    const producer = await keep(kafka.producer({ transactionalId: unique('tx'), idempotent: true, maxInFlightRequests: 1 }))
    const groupId = unique('group')
    for (const [prefix, commits] of [['kept', true], ['lost', false], ['also', true]]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: messages(10, prefix) })
      await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: commits ? '7' : '99' }] }] })
      await (commits ? transaction.commit() : transaction.abort())
    }
    const values = await collect(clients, topic, 20)
    assert.ok(values.every(value => !value.startsWith('lost')), 'an aborted message was read')
    const offsets = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.equal(offsets[0].partitions.find(row => row.partition === 0).offset, '7')
  }),

  'admin: topics, offsets, configs, groups': bootstrap => withClients(bootstrap, async clients => {
    const { kafka, admin, topic, keep } = clients
    assert.ok((await admin.listTopics()).includes(topic))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const producer = await keep(kafka.producer())
    await producer.send({ topic, messages: messages(20) })
    const offsets = await admin.fetchTopicOffsets(topic)
    assert.equal(offsets.reduce((sum, row) => sum + Number(row.high), 0), 20)
    await admin.fetchTopicOffsetsByTimestamp(topic, Date.now() - 60_000)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '5' }] })
    assert.equal((await admin.fetchTopicOffsets(topic)).find(row => row.partition === 0).low, '5')
    const wanted = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...wanted[0], configEntries: [{ name: 'retention.ms', value: '777777' }] }] })
    const described = await admin.describeConfigs({ includeSynonyms: true, resources: wanted })
    assert.equal(described.resources[0].configEntries.find(row => row.configName === 'retention.ms').configValue, '777777')
    const groupId = unique('group')
    await collect(clients, topic, 15, { groupId })
    assert.ok((await admin.listGroups()).groups.some(group => group.groupId === groupId))
    const group = (await admin.describeGroups([groupId])).groups[0]
    assert.equal(group.state, 'Stable')
    assert.equal(group.members.length, 1)
    await admin.setOffsets({ groupId: unique('group'), topic, partitions: [{ partition: 0, offset: '6' }] })
    assert.equal((await admin.describeCluster()).brokers.length, 1)
    await admin.deleteTopics({ topics: [topic] })
    assert.ok(!(await admin.listTopics()).includes(topic))
  })
})
