// @platformatic/kafka: producer, consumer groups of both protocols, transactions, admin.
import assert from 'node:assert/strict'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { run, unique, until } from './checks.mjs'

const READ_COMMITTED = 1

async function withClients (bootstrap, body) {
  const base = { clientId: 'platformatic', bootstrapBrokers: [bootstrap], autocreateTopics: false }
  const open = []
  const keep = client => {
    open.push(client)
    return client
  }
  const admin = keep(new Admin(base))
  const topic = unique('topic')
  await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 })
  const clients = {
    admin,
    topic,
    producer: options => keep(new Producer({ ...base, serializers: stringSerializers, ...options })),
    consumer: options => keep(new Consumer({ ...base, deserializers: stringDeserializers, groupId: unique('group'), ...options }))
  }
  try {
    await body(clients)
  } finally {
    for (const client of open.reverse()) {
      await (client instanceof Admin ? client.close() : client.close(true)).catch(() => {})
    }
  }
}

const messages = (topic, count, prefix = 'v') =>
  Array.from({ length: count }, (_, number) => ({ topic, key: `${number}`, value: `${prefix}${number}`, partition: number % 2 }))

async function follow (consumer, topic, options = {}) {
  const values = []
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: true, maxWaitTime: 200, ...options })
  stream.on('data', message => values.push(message.value))
  stream.on('error', () => {})
  return { values, stream }
}

const share = options => bootstrap => withClients(bootstrap, async clients => {
  const { admin, topic } = clients
  const groupId = unique('group')
  const first = clients.consumer({ groupId, ...options })
  const one = await follow(first, topic)
  const second = clients.consumer({ groupId, ...options })
  const two = await follow(second, topic)
  const count = consumer => consumer.assignments?.find(row => row.topic === topic)?.partitions.length ?? 0
  await until('one partition each', () => count(first) === 1 && count(second) === 1)
  await clients.producer().send({ messages: messages(topic, 20) })
  await until('all messages', () => new Set([...one.values, ...two.values]).size >= 20)
  assert.equal(new Set([...one.values, ...two.values]).size, 20)
  await two.stream.close()
  await second.close(true)
  await until('the first has both partitions', () => count(first) === 2)
  await one.stream.close()
  await first.close(true)
  const offsets = await admin.listConsumerGroupOffsets({ groups: [groupId] })
  assert.deepEqual(offsets[0].topics[0].partitions.map(row => row.committedOffset), [10n, 10n])
})

await run({
  'produce and consume': bootstrap => withClients(bootstrap, async clients => {
    const producer = clients.producer({ idempotent: true })
    for (const compression of ['none', 'gzip', 'zstd']) {
      if (compression !== 'zstd' || Number(process.versions.node.split('.')[0]) >= 22) {
        await producer.send({ messages: messages(clients.topic, 20, compression), compression })
      }
    }
    const { values } = await follow(clients.consumer(), clients.topic)
    await until('all messages', () => new Set(values).size >= 40)
  }),

  'consumer group: two members share, one leaves, offsets stay': share({}),

  'KIP-848 group: two members share, one leaves, offsets stay': share({ groupProtocol: 'consumer' }),

  'transactions: commit and abort': bootstrap => withClients(bootstrap, async clients => {
    const { topic } = clients
    const producer = clients.producer({ idempotent: true, transactionalId: unique('tx') })
    for (const [prefix, commits] of [['kept', true], ['lost', false], ['also', true]]) {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: messages(topic, 10, prefix) })
      await (commits ? transaction.commit() : transaction.abort())
    }
    const { values } = await follow(clients.consumer(), topic, { isolationLevel: READ_COMMITTED })
    await until('the committed', () => values.length >= 20)
    assert.ok(values.every(value => !value.startsWith('lost')), 'an aborted message was read')
  }),

  'admin: topics, configs, groups': bootstrap => withClients(bootstrap, async clients => {
    const { admin, topic } = clients
    assert.ok((await admin.listTopics()).includes(topic))
    await admin.createPartitions({ topics: [{ name: topic, count: 3, assignments: null }] })
    await clients.producer().send({ messages: messages(topic, 10) })
    const groupId = unique('group')
    const { values } = await follow(clients.consumer({ groupId }), topic)
    await until('all messages', () => values.length >= 10)
    assert.ok((await admin.listGroups()).has(groupId))
    assert.equal((await admin.describeGroups({ groups: [groupId] })).get(groupId).members.size, 1)
    const dirs = await admin.describeLogDirs({ topics: [{ name: topic, partitions: [0, 1, 2] }] })
    assert.equal(dirs.length, 1)
    const described = await admin.describeConfigs({ resources: [{ resourceType: 2, resourceName: topic, configurationKeys: null }] })
    assert.ok(described[0].configs.length > 20)
    await admin.deleteTopics({ topics: [topic] })
    assert.ok(!(await admin.listTopics()).includes(topic))
  })
})
