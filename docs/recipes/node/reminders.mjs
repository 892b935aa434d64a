// Reminders: at a time of the calendar; moved and cancelled by id; dropped when they would come too late.
//
//     node reminders.mjs BROKERS TOPIC [SECONDS]
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, seconds = 10] = process.argv.slice(2)

const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'reminders', maxWaitTimeInMs: 500, allowAutoTopicCreation: false })

const send = (visit, text, headers) =>
  producer.send({ topic, messages: [{ key: visit, value: text, headers: { 'x-schedule-id': visit, ...headers } }] })

// The same call sets a reminder and moves it: the same id replaces what is pending.
const remind = (visit, text, at, visitAt) =>
  send(visit, text, { 'x-deliver-at': at.toISOString(), 'x-expire-at': visitAt.toISOString() })

const forget = visit => send(visit, null, { 'x-schedule-action': 'cancel' })

const fromNow = seconds => new Date(Date.now() + seconds * 1000)
const hour = 3600
await producer.connect()
await remind('visit-1', 'your visit is today', fromNow(seconds), fromNow(hour))
await remind('visit-2', 'your visit is tomorrow', fromNow(hour), fromNow(2 * hour))
await remind('visit-2', 'your visit was moved to today', fromNow(2 * seconds), fromNow(hour)) // Moved.
await remind('visit-3', 'your visit is today', fromNow(seconds), fromNow(hour))
await forget('visit-3')

await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
let left = 2 // A service would run for ever.
const reminded = new Set() // Stands for your database.
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      // A crash before the commit repeats the record. Its handle tells that it is the same one.
      const handle = message.headers['x-schedule-handle'].toString()
      if (!reminded.has(handle)) {
        console.log(`${message.key}: ${message.value}`)
        reminded.add(handle)
      }
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      if (--left === 0) resolve()
    }
  })
})
await consumer.disconnect()
await producer.disconnect()
