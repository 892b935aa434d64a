// Debounce: many changes, one record, when nothing has changed for a while.
//
//     node debounce.mjs BROKERS TOPIC [QUIET_MS]
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, quietMs = '5000'] = process.argv.slice(2)

const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'indexer', maxWaitTimeInMs: 500, allowAutoTopicCreation: false })

// Replaces the pending record of the page, and so begins the quiet time again. The last value wins.
const changed = (page, version) =>
  producer.send({ topic, messages: [{ key: page, value: version, headers: { 'x-schedule-id': page, 'x-delay': quietMs } }] })

await producer.connect()
for (let version = 1; version <= 5; ++version) await changed('page-1', `version ${version}`)
await changed('page-2', 'version 1')

await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
let left = 2 // A service would run for ever.
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      console.log(`${message.key}: index ${message.value}`) // Repeated after a crash.
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      if (--left === 0) resolve()
    }
  })
})
await consumer.disconnect()
await producer.disconnect()
