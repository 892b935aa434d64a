// kafkajs, one errand a run:  node kafkajs.mjs produce|admin|deleteRecords BROKERS TOPIC
// produce reads {messages, compression, idempotent} from stdin, deleteRecords {partitions}.  Answers are JSON on stdout.
import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'

const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = kafkajs
const [errand, brokers, topic] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: brokers.split(','), logLevel: logLevel.NOTHING })

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
      await admin.deleteTopicRecords({ topic, partitions })
      return { offsets: await admin.fetchTopicOffsets(topic) }
    } catch (error) {
      return { error: error.type ?? error.name, message: error.message }
    } finally {
      await admin.disconnect()
    }
  }
}

console.log(JSON.stringify(await errands[errand]()))
