// @platformatic/kafka, one errand a run:  node platformatic.mjs create|produce|fetch BROKERS TOPIC
// and a member of a group, as group_member.py says:  node platformatic.mjs member BROKERS TOPIC GROUP DIE_AFTER
// produce reads {messages, compression} from stdin, fetch {count, within}.  Answers are JSON on stdout.
import { readFileSync, writeSync } from 'node:fs'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

// The only thing of Node.js 22 that these errands need.
Promise.withResolvers ??= function () {
  const parts = {}
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }))
  return parts
}

const [errand, brokers, topic] = process.argv.slice(2)
const common = { clientId: 'platformatic', bootstrapBrokers: brokers.split(','), retries: 3 }
const input = errand === 'member' ? {} : JSON.parse(readFileSync(0, 'utf8') || '{}')
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

  async member () {
    const [groupId, dieAfter] = process.argv.slice(5)
    const consumer = new Consumer({ ...common, groupId, deserializers: stringDeserializers, autocommit: false })
    consumer.on('consumer:group:join', () => writeSync(1, 'assigned\n'))
    const stream = await consumer.consume({
      topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 100,
      sessionTimeout: 3000, heartbeatInterval: 300, rebalanceTimeout: 10_000, highWaterMark: 1
    })
    process.once('SIGTERM', () => {
      consumer.close(true)
      // Now and then its close() does not end when another member leaves at that moment.
      setTimeout(() => process.exit(0), 10_000).unref()
    })
    let lines = 0
    for await (const message of stream) {
      // What it has read ahead may be of a partition that is somebody else's by now.
      if (!consumer.assignments?.some(each => each.topic === topic && each.partitions.includes(message.partition))) continue
      try {
        await message.commit()
      } catch (error) {
        writeSync(2, `${error.message}\n`)
        continue
      }
      writeSync(1, `${message.partition} ${message.offset} ${message.value}\n`)
      if (++lines === Number(dieAfter)) process.kill(process.pid, 'SIGKILL')
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

const answer = await errands[errand]()
if (answer !== undefined) console.log(JSON.stringify(answer, printable))
