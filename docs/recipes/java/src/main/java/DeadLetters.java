import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Dead letters: shows what was put aside, and puts it back when the cause is gone.
 *
 * <pre>DeadLetters BROKERS TOPIC COUNT [GAP_MS]</pre>
 *
 * Moves COUNT records from TOPIC.dead to TOPIC.retry, from where Retry takes them, one every GAP_MS.
 */
public class DeadLetters {
  /** What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these. */
  static final Pattern SCHEDULING =
      Pattern.compile("x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)", Pattern.CASE_INSENSITIVE);

  public static void main(String[] args) throws Exception {
    String topic = args[1];
    int count = Integer.parseInt(args[2]);
    int gapMs = args.length > 3 ? Integer.parseInt(args[3]) : 1000;
    // What a topic took has to be sent on: the client's own limit would be lower than the topic's.
    try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0], "max.request.size", String.valueOf(32 << 20)),
             new ByteArraySerializer(), new ByteArraySerializer());
         var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "put-back",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.subscribe(List.of(topic + ".dead"));
      int done = 0;
      while (done < count) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          if (done == count) break;  // Not committed, so it stays.
          // Without "retry-tries" it begins at its first try. With the same id, a crash before the commit puts it back
          // once, unless the first copy has been delivered by then.
          var copy = new ProducerRecord<>(topic + ".retry", record.partition(), record.key(), record.value());
          for (var each : record.headers()) {
            if (!SCHEDULING.matcher(each.key()).matches()) copy.headers().add(each);
          }
          copy.headers().remove("retry-tries").remove("retry-error");
          String origin = header(record, "retry-origin");
          if (origin.isEmpty()) origin = record.topic() + "/" + record.partition() + "/" + record.offset();
          copy.headers().add("x-schedule-id", origin.getBytes(StandardCharsets.UTF_8));
          copy.headers().add("x-delay", String.valueOf(done * gapMs).getBytes(StandardCharsets.UTF_8));
          producer.send(copy).get();
          consumer.commitSync(Map.of(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1)));
          System.out.println(text(record.value()) + ": put back (tries: " + header(record, "retry-tries") + "; " + header(record, "retry-error") + ")");
          ++done;
        }
      }
    }
  }

  static String header(ConsumerRecord<?, ?> record, String name) {
    var found = record.headers().lastHeader(name);
    return found == null ? "" : text(found.value());
  }

  static String text(byte[] value) {
    return value == null ? "" : new String(value, StandardCharsets.UTF_8);
  }
}
