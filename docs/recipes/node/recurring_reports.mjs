// Recurring reports: at the times of a cron expression, until it is cancelled.
//
//     node recurring_reports.mjs BROKERS TOPIC [CRON]
//
// Two runs, and then it is cancelled: with '* * * * * *' (six fields: every second) that takes two seconds.
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, cron = '0 8 * * MON-FRI'] = process.argv.slice(2)

const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'reports', maxWaitTimeInMs: 500, allowAutoTopicCreation: false })

const send = (report, headers) =>
  producer.send({ topic, messages: [{ key: report, value: report, headers: { 'x-schedule-id': report, ...headers } }] })

await producer.connect()
// A service may do this at each start: the same id replaces the pending run, and the times stay those of the clock.
for (let start = 0; start < 2; ++start) await send('sales', { 'x-cron': cron, 'x-cron-tz': 'Europe/Berlin' })

await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
const written = new Set() // Stands for your database: the runs whose report is written.
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      // All runs have the same handle; the due time tells them apart, and says which time the report is about.
      const run = message.headers['x-scheduled-for'].toString()
      if (!written.has(run) && written.size < 2) {
        written.add(run)
        console.log(`${message.value}: report ${written.size}`)
      }
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      if (written.size === 2) resolve()
    }
  })
})
await consumer.disconnect()

await send('sales', { 'x-schedule-action': 'cancel' })
console.log('sales: no more reports')
await producer.disconnect()
