import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Rate limiting: however fast records come in, they are delivered at most so many a second.
 *
 * <pre>RateLimit BROKERS TOPIC [PER_SECOND [HORIZON_MS]]</pre>
 *
 * Uses the topics TOPIC and TOPIC.paced. TOPIC has one partition, so that there is one pacer.
 */
public class RateLimit {
  static String topic;
  static double intervalMs = 500;
  static double horizonMs = 5000;
  static double slotMs;
  static KafkaProducer<String, String> producer;

  /** The pacer gives each record the next free slot, at most a horizon ahead. */
  static void pace(ConsumerRecord<String, String> record) throws Exception {
    slotMs = Math.max(slotMs + intervalMs, System.currentTimeMillis());
    Thread.sleep((long) Math.max(0, slotMs - horizonMs - System.currentTimeMillis()));
    var paced = new ProducerRecord<>(topic + ".paced", 0, record.key(), record.value());
    paced.headers().add("x-deliver-at", String.valueOf((long) slotMs).getBytes(StandardCharsets.UTF_8));
    // With an id, a crash before the commit gives it a new slot instead of a second one.
    paced.headers().add("x-schedule-id", (record.partition() + "/" + record.offset()).getBytes(StandardCharsets.UTF_8));
    producer.send(paced).get();
  }

  public static void main(String[] args) throws Exception {
    topic = args[1];
    if (args.length > 2) intervalMs = 1000 / Double.parseDouble(args[2]);
    if (args.length > 3) horizonMs = Double.parseDouble(args[3]);
    // It forgets its slots when it ends; so it begins behind all those that one before it may have given.
    slotMs = System.currentTimeMillis() + horizonMs;

    producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0]), new StringSerializer(), new StringSerializer());
    int mails = 5;
    for (int mail = 1; mail <= mails; ++mail) producer.send(new ProducerRecord<>(topic, "customer-" + mail, "mail " + mail)).get();

    // One loop for both, to keep it short. In a service the pacer and the worker are two programs.
    var slots = new ArrayList<Long>();
    try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "pacer",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic, topic + ".paced"));
      while (slots.size() < mails) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          if (record.topic().equals(topic)) {
            pace(record);
          } else {
            System.out.println(record.value());
            slots.add(Long.valueOf(new String(record.headers().lastHeader("x-scheduled-for").value(), StandardCharsets.UTF_8)));
          }
          consumer.commitSync(Map.of(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1)));
        }
      }
    }
    producer.close();
    for (int i = 1; i < mails; ++i) {
      long gap = slots.get(i) - slots.get(i - 1);
      if (gap < (long) intervalMs) throw new AssertionError(gap + " ms between two mails");
    }
    System.out.println("the rate was kept");
  }
}
