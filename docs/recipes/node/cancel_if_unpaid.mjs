// Cancel if unpaid: an order that is not paid in time is cancelled.
//
//     node cancel_if_unpaid.mjs BROKERS TOPIC [DELAY_MS [FILE]]
//
// TOPIC has all events of all orders, each with its order as key: "placed", "paid", and the "timeout" that this program sends.
// With FILE, which stands for your database, it is a service: it handles what others send, until SIGTERM or Ctrl-C. Without FILE
// it plays the shop too, and ends by itself.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [brokers, topic, delayMs = '30000', file] = process.argv.slice(2)

// A consumer that fails ends the program, and what supervises it starts it again.
const retry = { restartOnFailure: async () => false }
const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR, retry })
const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner })
const consumer = kafka.consumer({ groupId: 'order-timeouts', maxWaitTimeInMs: 500, allowAutoTopicCreation: false })
// Order -> 'open', 'paid', 'cancelled' or 'to be refunded'.
const state = new Map(file && existsSync(file) ? JSON.parse(readFileSync(file)) : [])

function store (order, what) {
  state.set(order, what)
  if (file) writeFileSync(file, JSON.stringify([...state]))
}

// The key takes all events of one order to one partition.
const send = (order, event, headers, partition) =>
  producer.send({ topic, messages: [{ key: order, value: event, headers, partition }] })

async function place (order, partition) {
  // The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
  if (state.has(order)) return
  // The timeout first: a crash in between leaves a timeout without an order, which does nothing.
  // The other way round it would leave an order that is never cancelled.
  // In the partition of the other events, it is behind all payments that came before it was due.
  await send(order, 'timeout', { 'x-schedule-id': `order/${order}`, 'x-delay': delayMs }, partition)
  store(order, 'open') // INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING
}

async function pay (order, partition) {
  // The database first, and it decides: INSERT INTO orders VALUES (?, 'paid')
  // ON CONFLICT (id) DO UPDATE SET state = 'paid' WHERE orders.state = 'open'
  if ((state.get(order) ?? 'open') === 'open') store(order, 'paid')
  if (state.get(order) === 'paid') {
    // Also when the event comes again: the program may have crashed here.
    await send(order, null, { 'x-schedule-id': `order/${order}`, 'x-schedule-action': 'cancel' }, partition)
  } else if (state.get(order) === 'cancelled') {
    store(order, 'to be refunded')
    console.log(`${order}: paid too late, to be refunded`)
  }
}

async function onTimeout (order) {
  // One conditional update, so that a payment at the same moment wins or loses as a whole:
  // UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
  if (state.get(order) === 'open') {
    store(order, 'cancelled')
    console.log(`${order}: not paid in time, cancelled`)
  } else {
    console.log(`${order}: ${state.get(order) ?? 'never placed'}, nothing to do`)
  }
}

async function handle (message, partition) {
  const key = Buffer.from(message.key ?? '')
  const order = key.toString()
  const event = String(message.value)
  const bytes = key.length
  // An id has at most 249 bytes of UTF-8. A timeout that is refused would stop all events behind this one for ever.
  if (bytes === 0 || bytes > 200 || !Buffer.from(order).equals(key)) console.log(`an order of ${bytes} bytes, put aside`)
  else if (event === 'placed') await place(order, partition)
  else if (event === 'paid') await pay(order, partition)
  else if (event === 'timeout') await onTimeout(order) // Others may send other events.
}

await producer.connect()
if (!file) {
  await send('order-1', 'placed')
  // Some events come twice, and change nothing. The timeout of this order never comes.
  for (const event of ['placed', 'paid', 'paid', 'placed']) await send('order-2', event)
}

await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
let stopped = false
await new Promise((resolve, reject) => {
  for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => { stopped = true; resolve() })
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      await handle(message, partition)
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      if (!file && state.get('order-1') === 'cancelled') resolve()
    }
  })
})
await consumer.disconnect() // Leaves the group, so that the other members need not wait for a timeout.
if (!stopped) await pay('order-1')
await producer.disconnect()
process.exit() // kafkajs may still be joining the group, and would not let the program end.
