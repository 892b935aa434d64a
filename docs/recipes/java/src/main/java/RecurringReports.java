import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Recurring reports: at the times of a cron expression, until it is cancelled.
 *
 * <pre>RecurringReports BROKERS TOPIC [CRON]</pre>
 *
 * Two runs, and then it is cancelled: with '* * * * * *' (six fields: every second) that takes two seconds.
 */
public class RecurringReports {
  static String topic;
  static KafkaProducer<String, String> producer;

  static void send(String report, Map<String, String> headers) throws Exception {
    var record = new ProducerRecord<>(topic, report, report);
    record.headers().add("x-schedule-id", report.getBytes(StandardCharsets.UTF_8));
    headers.forEach((name, value) -> record.headers().add(name, value.getBytes(StandardCharsets.UTF_8)));
    producer.send(record).get();
  }

  public static void main(String[] args) throws Exception {
    topic = args[1];
    String cron = args.length > 2 ? args[2] : "0 8 * * MON-FRI";
    producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0]), new StringSerializer(), new StringSerializer());
    // A service may do this at each start: the same id replaces the pending run, and the times stay those of the clock.
    for (int start = 0; start < 2; ++start) send("sales", Map.of("x-cron", cron, "x-cron-tz", "Europe/Berlin"));

    try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "reports",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic));
      var written = new HashSet<String>();  // Stands for your database: the runs whose report is written.
      while (written.size() < 2) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          // All runs have the same handle; the due time tells them apart, and says which time the report is about.
          String run = new String(record.headers().lastHeader("x-scheduled-for").value(), StandardCharsets.UTF_8);
          if (written.size() < 2 && written.add(run)) System.out.println(record.value() + ": report " + written.size());
        }
        consumer.commitSync();  // All that poll() returned.
      }
      send("sales", Map.of("x-schedule-action", "cancel"));
      System.out.println("sales: no more reports");
    }
    producer.close();
  }
}
