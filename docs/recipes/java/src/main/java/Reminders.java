import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reminders: at a time of the calendar; moved and cancelled by id; dropped when they would come too late.
 *
 * <pre>Reminders BROKERS TOPIC [SECONDS]</pre>
 */
public class Reminders {
  static String topic;
  static KafkaProducer<String, String> producer;

  static void send(String visit, String text, Map<String, String> headers) throws Exception {
    var record = new ProducerRecord<>(topic, visit, text);
    record.headers().add("x-schedule-id", visit.getBytes(StandardCharsets.UTF_8));
    headers.forEach((name, value) -> record.headers().add(name, value.getBytes(StandardCharsets.UTF_8)));
    producer.send(record).get();
  }

  /** The same call sets a reminder and moves it: the same id replaces what is pending. */
  static void remind(String visit, String text, OffsetDateTime at, OffsetDateTime visitAt) throws Exception {
    send(visit, text, Map.of("x-deliver-at", at.toInstant().toString(), "x-expire-at", visitAt.toInstant().toString()));
  }

  static void forget(String visit) throws Exception {
    send(visit, null, Map.of("x-schedule-action", "cancel"));
  }

  public static void main(String[] args) throws Exception {
    topic = args[1];
    var soon = Duration.ofMillis((long) (1000 * (args.length > 2 ? Double.parseDouble(args[2]) : 10)));
    producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0]), new StringSerializer(), new StringSerializer());
    var now = OffsetDateTime.now();
    remind("visit-1", "your visit is today", now.plus(soon), now.plusHours(1));
    remind("visit-2", "your visit is tomorrow", now.plusHours(1), now.plusHours(2));
    remind("visit-2", "your visit was moved to today", now.plus(soon).plus(soon), now.plusHours(1));  // Moved.
    remind("visit-3", "your visit is today", now.plus(soon), now.plusHours(1));
    forget("visit-3");

    try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "reminders",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic));
      var reminded = new HashSet<String>();  // Stands for your database.
      for (int left = 2; left > 0;) {  // A service would run for ever.
        var records = consumer.poll(Duration.ofSeconds(1));
        for (var record : records) {
          // A crash before the commit repeats the record. Its handle tells that it is the same one.
          String handle = new String(record.headers().lastHeader("x-schedule-handle").value(), StandardCharsets.UTF_8);
          if (reminded.add(handle)) System.out.println(record.key() + ": " + record.value());
        }
        consumer.commitSync();  // All that poll() returned.
        left -= records.count();
      }
    }
    producer.close();
  }
}
