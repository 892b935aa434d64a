// kafkajs, one errand a run:  node kafkajs.mjs produce|fetch|admin|deleteRecords BROKERS TOPIC
// and a member of a group, as group_member.py says:  node kafkajs.mjs member BROKERS TOPIC GROUP DIE_AFTER
// produce reads {messages, compression, idempotent} from stdin, fetch {count, within}, deleteRecords {partitions}.  Answers are JSON on stdout.
import { readFileSync, writeSync } from 'node:fs'
import kafkajs from 'kafkajs'

const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = kafkajs
const [errand, brokers, topic] = process.argv.slice(2)
let kafka = new Kafka({ clientId: 'kafkajs', brokers: brokers.split(','), logLevel: logLevel.NOTHING })

async function consumeSome (count, within) {
  // It reads as a member of a group only: of one that nobody else is in.
  const consumer = kafka.consumer({ groupId: `fetch-${topic}-${process.pid}`, maxWaitTimeInMs: 100 })
  const records = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    setTimeout(resolve, within).unref()
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => {
        records.push({ offset: message.offset, value: message.value?.toString() })
        if (records.length === count) resolve()
      }
    })
  })
  await consumer.disconnect()
  return { records }
}

const errands = {
  async produce () {
    const { messages, compression = 'None', idempotent = false } = JSON.parse(readFileSync(0, 'utf8'))
    const producer = kafka.producer({ idempotent, allowAutoTopicCreation: false, retry: { retries: 3 } })
    await producer.connect()
    try {
      return await producer.send({ topic, messages, compression: CompressionTypes[compression] })
    } catch (error) {
      return { error: error.type ?? error.name, code: error.code, message: error.message }
    } finally {
      await producer.disconnect()
    }
  },

  async fetch () {
    const { count, within = 20_000 } = JSON.parse(readFileSync(0, 'utf8'))
    return consumeSome(count, within)
  },

  // Reads {brokers, ca, sasl, messages}: sends them over TLS and fetches them again, after a login if there is sasl.
  async tls () {
    const { brokers, ca, sasl, messages } = JSON.parse(readFileSync(0, 'utf8'))
    kafka = new Kafka({ clientId: 'kafkajs', brokers, logLevel: logLevel.NOTHING, ssl: { ca: [ca], servername: 'localhost' }, sasl })
    const producer = kafka.producer({ allowAutoTopicCreation: false })
    await producer.connect()
    await producer.send({ topic, messages })
    await producer.disconnect()
    return consumeSome(messages.length, 20_000)
  },

  async member () {
    const [group, dieAfter] = process.argv.slice(5)
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 3000, heartbeatInterval: 300, maxWaitTimeInMs: 100 })
    consumer.on(consumer.events.GROUP_JOIN, () => console.log('assigned'))
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    let lines = 0
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message, heartbeat }) => {
        await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
        writeSync(1, `${partition} ${message.offset} ${message.value}\n`)
        if (++lines === Number(dieAfter)) process.kill(process.pid, 'SIGKILL')
        await heartbeat()
      }
    })
    await new Promise(resolve => process.once('SIGTERM', resolve))
    await consumer.disconnect()
  },

  async admin () {
    const admin = kafka.admin()
    await admin.connect()
    const configs = async () => {
      const { resources } = await admin.describeConfigs({
        includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }]
      })
      return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
    }
    const answer = {}
    answer.created = await admin.createTopics({
      topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '123456' }] }]
    })
    answer.again = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] })
    answer.listed = (await admin.listTopics()).includes(topic)
    answer.configs = await configs()
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '654321' }] }]
    })
    answer.altered = await configs()
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
    answer.partitions = metadata.topics[0].partitions.length
    answer.offsets = await admin.fetchTopicOffsets(topic)
    answer.cluster = await admin.describeCluster()
    await admin.deleteTopics({ topics: [topic] })
    answer.deleted = !(await admin.listTopics()).includes(topic)
    await admin.disconnect()
    return answer
  },

  async deleteRecords () {
    const { partitions } = JSON.parse(readFileSync(0, 'utf8'))
    const admin = kafka.admin()
    await admin.connect()
    try {
      await admin.fetchTopicOffsets(topic) // It deletes only of topics that it knows already.
      await admin.deleteTopicRecords({ topic, partitions })
      return { offsets: await admin.fetchTopicOffsets(topic) }
    } catch (error) {
      return { error: error.type ?? error.name, message: error.message }
    } finally {
      await admin.disconnect()
    }
  }
}

const answer = await errands[errand]()
if (answer !== undefined) console.log(JSON.stringify(answer))
