// @platformatic/kafka, one errand a run:  node platformatic.mjs create|produce|fetch BROKERS TOPIC
// produce reads {messages, compression} from stdin, fetch {count, within}.  Answers are JSON on stdout.
import { readFileSync } from 'node:fs'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

// The only thing of Node.js 22 that these errands need.
Promise.withResolvers ??= function () {
  const parts = {}
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }))
  return parts
}

const [errand, brokers, topic] = process.argv.slice(2)
const common = { clientId: 'platformatic', bootstrapBrokers: brokers.split(','), retries: 3 }
const input = JSON.parse(readFileSync(0, 'utf8') || '{}')
const printable = (_, value) => typeof value === 'bigint' ? Number(value) : value

const errands = {
  async create () {
    const admin = new Admin(common)
    const created = await admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 })
    await admin.close()
    return created
  },

  async produce () {
    const producer = new Producer({ ...common, serializers: stringSerializers })
    try {
      const messages = input.messages.map(message => ({ topic, partition: 0, ...message }))
      return await producer.send({ messages, acks: -1, compression: input.compression ?? 'none' })
    } catch (error) {
      const text = []
      for (let each = error; each; each = each.cause ?? each.errors?.[0]) text.push(each.message)
      return { error: text.join(': ') }
    } finally {
      await producer.close()
    }
  },

  async fetch () {
    const consumer = new Consumer({ ...common, groupId: 'unused', deserializers: stringDeserializers, autocommit: false })
    const { topics, brokers: nodes } = await consumer.metadata({ topics: [topic] })
    const records = []
    const end = Date.now() + (input.within ?? 10_000)
    let offset = 0n
    while (records.length < input.count && Date.now() < end) {
      const { responses } = await consumer.fetch({
        node: [...nodes.keys()][0], minBytes: 1, maxBytes: 1 << 20, maxWaitTime: 500, isolationLevel: 0,
        topics: [{
          topicId: topics.get(topic).id,
          partitions: [{ partition: 0, currentLeaderEpoch: -1, lastFetchedEpoch: -1, fetchOffset: offset, partitionMaxBytes: 1 << 20 }]
        }]
      })
      for (const batch of responses.flatMap(response => response.partitions).flatMap(partition => partition.records ?? [])) {
        for (const record of batch.records) {
          offset = batch.firstOffset + BigInt(record.offsetDelta) + 1n
          records.push({
            offset: offset - 1n,
            key: record.key?.toString(),
            value: record.value?.toString(),
            headers: Object.fromEntries(record.headers.map(([key, value]) => [key.toString(), value.toString()]))
          })
        }
      }
    }
    await consumer.close()
    return { records }
  }
}

console.log(JSON.stringify(await errands[errand](), printable))
