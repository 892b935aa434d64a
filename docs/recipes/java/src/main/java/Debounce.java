import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debounce: many changes, one record, when nothing has changed for a while.
 *
 * <pre>Debounce BROKERS TOPIC [QUIET_MS]</pre>
 */
public class Debounce {
  static String topic;
  static String quietMs = "5000";
  static KafkaProducer<String, String> producer;

  /** Replaces the pending record of the page, and so begins the quiet time again. The last value wins. */
  static void changed(String page, String version) throws Exception {
    var record = new ProducerRecord<>(topic, page, version);
    record.headers().add("x-schedule-id", page.getBytes(StandardCharsets.UTF_8));
    record.headers().add("x-delay", quietMs.getBytes(StandardCharsets.UTF_8));
    producer.send(record).get();
  }

  public static void main(String[] args) throws Exception {
    topic = args[1];
    if (args.length > 2) quietMs = args[2];
    producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0]), new StringSerializer(), new StringSerializer());
    for (int version = 1; version <= 5; ++version) changed("page-1", "version " + version);
    changed("page-2", "version 1");

    try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "indexer",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic));
      for (int left = 2; left > 0;) {  // A service would run for ever.
        var records = consumer.poll(Duration.ofSeconds(1));
        for (var record : records) System.out.println(record.key() + ": index " + record.value());  // Repeated after a crash.
        consumer.commitSync();  // All that poll() returned.
        left -= records.count();
      }
    }
    producer.close();
  }
}
