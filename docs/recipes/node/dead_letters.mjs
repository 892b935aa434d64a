// Dead letters: shows what was put aside, and puts it back when the cause is gone.
//
//     node dead_letters.mjs BROKERS TOPIC COUNT [GAP_MS]
//
// Moves COUNT records from TOPIC.dead to TOPIC.retry, from where retry.mjs takes them, one every GAP_MS.
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, count, gapMs = 1000] = process.argv.slice(2)
// What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these.
const scheduling = /^x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)$/i

const retry = { restartOnFailure: async () => false }
const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR, retry })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'put-back', maxWaitTimeInMs: 500, allowAutoTopicCreation: false })

await producer.connect()
await consumer.connect()
await consumer.subscribe({ topics: [`${topic}.dead`], fromBeginning: true })
let done = 0
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic: from, partition, message }) => {
      if (done === Number(count)) return // Not committed, so it stays.
      // Without "retry-tries" it begins at its first try. With the same id, a crash before the commit puts it back
      // once, unless the first copy has been delivered by then.
      const { 'retry-tries': tries, 'retry-error': error, ...headers } = Object.fromEntries(
        Object.entries(message.headers).filter(([name]) => !scheduling.test(name))
          .map(([name, value]) => [name, [value].flat().map(each => each ?? '')])) // kafkajs refuses null.
      headers['x-schedule-id'] = String(headers['retry-origin'] ?? '') || `${from}/${partition}/${message.offset}`
      headers['x-delay'] = String(done * gapMs)
      const sent = await producer.send({
        topic: `${topic}.retry`, messages: [{ partition, key: message.key, value: message.value, headers }]
      })
      // To a partition that does not exist kafkajs sends nothing, and says so by this alone.
      if (sent.length === 0) throw new Error('the topics have to have the same number of partitions')
      await consumer.commitOffsets([{ topic: from, partition, offset: String(BigInt(message.offset) + 1n) }])
      console.log(`${message.value ?? ''}: put back (tries: ${tries ?? ''}; ${error ?? ''})`)
      if (++done === Number(count)) resolve()
    }
  })
})
await consumer.disconnect()
await producer.disconnect()
