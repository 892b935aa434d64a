// The Java client beside the relay, for tests/relay/clients_with_kafka.py:
//
//	java -cp ... RelayClient produce BROKERS TOPIC
//	java -cp ... RelayClient consume BROKERS GROUP TOPIC...
//
// produce reads groups of records from its input.  A group is a line "CODEC OUTCOME", where OUTCOME is "-", or "commit"
// or "abort" for a transaction; a line "KEY VALUE NAME VALUE NAME VALUE..." for each record; and an empty line.  When the
// group is acknowledged, and its transaction has ended, it prints "ok".  consume reads committed, and prints each record:
// "TOPIC PARTITION CHOSEN OFFSET TIMESTAMP NOW KEY VALUE NAME VALUE...", where CHOSEN is the partition that this client's
// producer chooses for the key.  Bytes are in base64 behind "="; "-" is null.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class RelayClient {
  public static void main(String[] words) throws Exception {
    if (words[0].equals("produce"))
      produce(words[1], words[2]);
    else
      consume(words[1], words[2], Arrays.asList(words).subList(3, words.length));
  }

  static void produce(String brokers, String topic) throws Exception {
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    int groups = 0;
    for (String head; (head = input.readLine()) != null; ++groups) {
      var records = new ArrayList<ProducerRecord<byte[], byte[]>>();
      for (String line; !(line = input.readLine()).isEmpty();)
        records.add(parse(topic, line.split(" ")));
      var how = head.split(" ");
      send(brokers, how[0], how[1], topic + "-java-" + groups, records);
      System.out.println("ok");
    }
  }

  static ProducerRecord<byte[], byte[]> parse(String topic, String[] words) {
    var record = new ProducerRecord<byte[], byte[]>(topic, bytes(words[0]), bytes(words[1]));
    for (int i = 2; i < words.length; i += 2)
      record.headers().add(new String(bytes(words[i]), StandardCharsets.UTF_8), bytes(words[i + 1]));
    return record;
  }

  static void send(String brokers, String codec, String outcome, String transactionalId,
                   List<ProducerRecord<byte[], byte[]>> records) throws Exception {
    var settings = new Properties();
    settings.put("bootstrap.servers", brokers);
    settings.put("compression.type", codec);
    // The records of a group are in few batches, so that the codec has something to do.
    settings.put("linger.ms", "100");
    settings.put("batch.size", "500000");
    boolean isTransaction = !outcome.equals("-");
    if (isTransaction) settings.put("transactional.id", transactionalId);
    try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
      if (isTransaction) {
        producer.initTransactions();
        producer.beginTransaction();
      }
      var sent = new ArrayList<Future<RecordMetadata>>();
      for (var record : records) sent.add(producer.send(record));
      // Those of a transaction that aborts are in the log too.
      producer.flush();
      for (var each : sent) each.get();
      if (outcome.equals("commit")) producer.commitTransaction();
      if (outcome.equals("abort")) producer.abortTransaction();
    }
  }

  static void consume(String brokers, String group, List<String> topics) {
    var settings = new Properties();
    settings.put("bootstrap.servers", brokers);
    settings.put("group.id", group);
    settings.put("isolation.level", "read_committed");
    settings.put("auto.offset.reset", "earliest");
    Map<String, Integer> counts = new HashMap<>();
    try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.subscribe(topics);
      while (true) {
        for (var record : consumer.poll(Duration.ofMillis(200))) {
          int count = counts.computeIfAbsent(record.topic(), topic -> consumer.partitionsFor(topic).size());
          System.out.println(text(record, count));
        }
        System.out.flush();
      }
    }
  }

  static String text(ConsumerRecord<byte[], byte[]> record, int partitions) {
    var line = new StringBuilder();
    int chosen = record.key() == null ? -1 : BuiltInPartitioner.partitionForKey(record.key(), partitions);
    line.append(record.topic()).append(' ').append(record.partition()).append(' ').append(chosen);
    line.append(' ').append(record.offset()).append(' ').append(record.timestamp());
    line.append(' ').append(System.currentTimeMillis());
    line.append(' ').append(text(record.key())).append(' ').append(text(record.value()));
    for (var header : record.headers()) {
      line.append(' ').append(text(header.key().getBytes(StandardCharsets.UTF_8)));
      line.append(' ').append(text(header.value()));
    }
    return line.toString();
  }

  static byte[] bytes(String word) {
    return word.equals("-") ? null : Base64.getDecoder().decode(word.substring(1));
  }

  static String text(byte[] bytes) {
    return bytes == null ? "-" : "=" + Base64.getEncoder().encodeToString(bytes);
  }
}
