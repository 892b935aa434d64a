// Retry with back-off: a record that cannot be handled is handled again later, and put aside in the end.
//
//     node retry.mjs BROKERS TOPIC [FIRST_DELAY_MS]
//
// Uses the topics TOPIC, TOPIC.retry and TOPIC.dead, with the same number of partitions.
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, firstDelayMs = 1000] = process.argv.slice(2)
const maxTries = 3
const cut = 500 // How much of a reason is sent, and of a key and a value that are too large.
// What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these.
const scheduling = /^x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)$/i

// A consumer that fails ends the program, and what supervises it starts it again.
const retry = { restartOnFailure: async () => false }
const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR, retry })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'billing', maxWaitTimeInMs: 500, allowAutoTopicCreation: false })

class Hopeless extends Error {}

// Your work. It has to be idempotent: a crash before the commit repeats it.
async function handle (order, tries) {
  if (order === '' || order === 'nonsense') throw new Hopeless('not an order')
  if (order === 'order 3' || (order === 'order 2' && tries === 1)) throw new Error('the bank does not answer')
}

// Only in the retry topic are these headers ours; elsewhere somebody else may use the same names.
const ours = (from, message, name) => from === `${topic}.retry` ? String(message.headers[name] ?? '') : ''

// Sends the record on with its own headers and ours. The caller commits only after that.
async function tryAgainOrPutAside ({ from, partition, message, tries, error }) {
  // kafkajs cannot send a header without a value: it gets an empty one.
  const theirs = Object.fromEntries(Object.entries(message.headers).filter(([name]) => !scheduling.test(name))
    .map(([name, value]) => [name, [value].flat().map(each => each ?? '')]))
  // The id names the record that failed first. If we crash before the commit and come here again,
  // the second copy replaces the first instead of joining it.
  const origin = ours(from, message, 'retry-origin') || `${from}/${partition}/${message.offset}`
  const added = { 'retry-origin': origin, 'retry-tries': String(tries), 'retry-error': String(error?.message ?? error).slice(0, cut) }
  let again = tries < maxTries && !(error instanceof Hopeless)
  if (again) {
    const delay = firstDelayMs * 2 ** (tries - 1) * (1 + Math.random() / 4) // Not all at once after an outage.
    Object.assign(added, { 'x-schedule-id': origin, 'x-delay': String(Math.round(delay)) })
  }
  // The partition is the same too: an id belongs to its partition, and a record may have no key.
  const send = (to, key, value, headers) => producer.send({ topic: to, messages: [{ partition, key, value, headers }] })
  let sent
  try {
    sent = await send(again ? `${topic}.retry` : `${topic}.dead`, message.key, message.value, { ...theirs, ...added })
  } catch (refused) {
    if (refused.type !== 'MESSAGE_TOO_LARGE') throw refused
    // The topic takes no record of this size. The beginning of the value goes into a header, so that nobody takes it
    // for the whole; the whole is where retry-origin says.
    again = false
    sent = await send(`${topic}.dead`, message.key?.subarray(0, cut) ?? null, null, {
      'retry-origin': origin,
      'retry-tries': String(tries),
      'retry-error': `too large to be sent on: ${added['retry-error']}`,
      'retry-cut': message.value?.subarray(0, cut) ?? ''
    })
  }
  // To a partition that does not exist kafkajs sends nothing, and says so by this alone.
  if (sent.length === 0) throw new Error('the topics have to have the same number of partitions')
  console.log(`${message.value}: try ${tries} failed, ${again ? 'again later' : 'put aside'}`)
  return again
}

await producer.connect()
const orders = ['order 1', 'order 2', 'order 3', 'nonsense']
await producer.send({ topic, messages: orders.map(order => ({ key: order, value: order })) })

await consumer.connect()
await consumer.subscribe({ topics: [topic, `${topic}.retry`], fromBeginning: true })
let left = orders.length // A service would run for ever.
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic: from, partition, message }) => {
      const tries = Math.max(0, parseInt(ours(from, message, 'retry-tries')) || 0) + 1
      let again = false
      try {
        await handle(String(message.value ?? ''), tries)
        console.log(`${message.value}: done at try ${tries}`)
      } catch (error) {
        again = await tryAgainOrPutAside({ from, partition, message, tries, error })
      }
      await consumer.commitOffsets([{ topic: from, partition, offset: String(BigInt(message.offset) + 1n) }])
      if (!again && --left === 0) resolve()
    }
  })
})
await consumer.disconnect()
await producer.disconnect()
