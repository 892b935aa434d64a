// Rate limiting: however fast records come in, they are delivered at most so many a second.
//
//     node rate_limit.mjs BROKERS TOPIC [PER_SECOND [HORIZON_MS]]
//
// Uses the topics TOPIC and TOPIC.paced. TOPIC has one partition, so that there is one pacer.
import { setTimeout as sleep } from 'node:timers/promises'
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, perSecond = 2, horizonMs = 5000] = process.argv.slice(2)
const intervalMs = 1000 / Number(perSecond)

const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'pacer', maxWaitTimeInMs: 100, allowAutoTopicCreation: false })

// The pacer gives each record the next free slot, at most a horizon ahead. It forgets its slots when it
// ends; so it begins behind all those that one before it may have given.
let slotMs = Date.now() + Number(horizonMs)

async function pace (partition, message) {
  slotMs = Math.max(slotMs + intervalMs, Date.now())
  await sleep(Math.max(0, slotMs - horizonMs - Date.now()))
  // With an id, a crash before the commit gives it a new slot instead of a second one.
  const headers = { 'x-deliver-at': String(Math.floor(slotMs)), 'x-schedule-id': `${partition}/${message.offset}` }
  await producer.send({ topic: `${topic}.paced`, messages: [{ partition: 0, key: message.key, value: message.value, headers }] })
}

await producer.connect()
const mails = [1, 2, 3, 4, 5]
await producer.send({ topic, messages: mails.map(mail => ({ key: `customer-${mail}`, value: `mail ${mail}` })) })

// One loop for both, to keep it short. In a service the pacer and the worker are two programs.
await consumer.connect()
await consumer.subscribe({ topics: [topic, `${topic}.paced`], fromBeginning: true })
const slots = []
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic: from, partition, message }) => {
      if (from === topic) {
        await pace(partition, message)
      } else {
        console.log(message.value.toString())
        slots.push(Number(message.headers['x-scheduled-for']))
      }
      await consumer.commitOffsets([{ topic: from, partition, offset: String(BigInt(message.offset) + 1n) }])
      if (slots.length === mails.length) resolve()
    }
  })
})
await consumer.disconnect()
await producer.disconnect()
const closest = Math.min(...slots.slice(1).map((slot, before) => slot - slots[before]))
console.log(closest >= Math.floor(intervalMs) ? 'the rate was kept' : `${closest} ms between two mails`)
