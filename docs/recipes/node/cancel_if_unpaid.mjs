// Cancel if unpaid: an order that is not paid in time is cancelled.
//
//     node cancel_if_unpaid.mjs BROKERS TOPIC [DELAY_MS]
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, delayMs = '30000'] = process.argv.slice(2)

// A consumer that fails ends the program, and what supervises it starts it again.
const retry = { restartOnFailure: async () => false }
const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR, retry })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'order-timeouts', maxWaitTimeInMs: 500, allowAutoTopicCreation: false })
const state = new Map() // Stands for your database: order -> 'open', 'paid', 'cancelled' or 'to be refunded'.

// The key takes all records of one order to one partition.
const send = (order, headers) =>
  producer.send({ topic, messages: [{ key: order, value: order, headers: { 'x-schedule-id': order, ...headers } }] })

async function place (order) {
  // The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
  if (state.has(order)) return
  // The timeout first: a crash in between leaves a timeout without an order, which does nothing.
  // The other way round it would leave an order that is never cancelled.
  await send(order, { 'x-delay': delayMs })
  state.set(order, 'open') // INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING
}

async function pay (order, crash = false) {
  if (!state.has(order)) throw new Error(`${order} is not placed yet`) // Try again later.
  // The database first, and it decides: UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'open'
  if (state.get(order) === 'open') state.set(order, 'paid')
  if (state.get(order) === 'paid') {
    // Also when the event comes again: the program may have crashed here.
    if (!crash) await send(order, { 'x-schedule-action': 'cancel' })
  } else if (state.get(order) === 'cancelled') {
    state.set(order, 'to be refunded')
    console.log(`${order}: paid too late, to be refunded`)
  }
}

async function onTimeout (order) {
  // One conditional update, so that a payment at the same moment wins or loses as a whole:
  // UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
  if (state.get(order) === 'open') {
    state.set(order, 'cancelled')
    console.log(`${order}: not paid in time, cancelled`)
  } else {
    console.log(`${order}: ${state.get(order) ?? 'never placed'}, nothing to do`)
  }
}

await producer.connect()
for (const order of ['order-1', 'order-2', 'order-3']) await place(order)
await pay('order-2') // Its timeout never comes.
await pay('order-3', true) // Its timeout comes, and finds that it is paid.
await pay('order-2') // Both events come again, and change nothing.
await place('order-2')

await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
let left = 2 // A service would run until it is stopped.
await new Promise((resolve, reject) => {
  process.once('SIGTERM', resolve)
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      await onTimeout(message.value.toString())
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      if (--left === 0) resolve()
    }
  })
})
await consumer.disconnect() // Leaves the group, so that the other members need not wait for a timeout.
if (left === 0) await pay('order-1')
await producer.disconnect()
process.exit() // kafkajs may still be joining the group, and would not let the program end.
