import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Retry with back-off: a record that cannot be handled is handled again later, and put aside in the end.
 *
 * <pre>Retry BROKERS TOPIC [FIRST_DELAY_MS]</pre>
 *
 * Uses the topics TOPIC, TOPIC.retry and TOPIC.dead, with the same number of partitions.
 */
public class Retry {
  static final int MAX_TRIES = 3;
  /** How much of a reason is sent, and of a key and a value that are too large. */
  static final int CUT = 500;
  /** What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these. */
  static final Pattern SCHEDULING =
      Pattern.compile("x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)", Pattern.CASE_INSENSITIVE);
  static String topic;
  static int firstDelayMs = 1000;
  static KafkaProducer<byte[], byte[]> producer;  // Bytes, because values that are no text are sent on, too.

  static class Hopeless extends Exception {
    Hopeless(String message) { super(message); }
  }

  /** Your work. It has to be idempotent: a crash before the commit repeats it. */
  static void handle(String order, int tries) throws Exception {
    if (order.isEmpty() || order.equals("nonsense")) throw new Hopeless("not an order");
    if (order.equals("order 3") || order.equals("order 2") && tries == 1) throw new Exception("the bank does not answer");
  }

  /** Sends the record on with its own headers and ours. The caller commits only after that. */
  static boolean tryAgainOrPutAside(ConsumerRecord<byte[], byte[]> record, int tries, Exception error) throws Exception {
    boolean again = tries < MAX_TRIES && !(error instanceof Hopeless);
    // The id names the record that failed first. If we crash before the commit and come here again,
    // the second copy replaces the first instead of joining it.
    String origin = ours(record, "retry-origin", record.topic() + "/" + record.partition() + "/" + record.offset());
    // The partition is the same too: an id belongs to its partition, and a record may have no key.
    var copy = new ProducerRecord<>(topic + (again ? ".retry" : ".dead"), record.partition(), record.key(), record.value());
    for (var theirs : record.headers()) {
      if (!SCHEDULING.matcher(theirs.key()).matches()) copy.headers().remove(theirs.key()).add(theirs);
    }
    put(copy, "retry-origin", origin);
    put(copy, "retry-tries", String.valueOf(tries));
    String message = String.valueOf(error.getMessage());
    String reason = message.substring(0, Math.min(message.length(), CUT));
    put(copy, "retry-error", reason);
    if (again) {
      double delay = firstDelayMs * Math.pow(2, tries - 1) * (1 + Math.random() / 4);  // Not all at once after an outage.
      put(copy, "x-schedule-id", origin);
      put(copy, "x-delay", String.valueOf((long) delay));
    }
    try {
      producer.send(copy).get();
    } catch (ExecutionException refused) {
      if (!(refused.getCause() instanceof RecordTooLargeException)) throw refused;
      // The topic takes no record of this size. The beginning of the value goes into a header, so that nobody takes it
      // for the whole; the whole is where retry-origin says.
      again = false;
      var beginning = new ProducerRecord<byte[], byte[]>(topic + ".dead", record.partition(), start(record.key()), null);
      put(beginning, "retry-origin", origin);
      put(beginning, "retry-tries", String.valueOf(tries));
      put(beginning, "retry-error", "too large to be sent on: " + reason);
      if (record.value() != null) beginning.headers().add("retry-cut", start(record.value()));
      producer.send(beginning).get();
    }
    System.out.println(text(record.value()) + ": try " + tries + " failed, " + (again ? "again later" : "put aside"));
    return again;
  }

  public static void main(String[] args) throws Exception {
    topic = args[1];
    if (args.length > 2) firstDelayMs = Integer.parseInt(args[2]);
    // A record that the broker has not acknowledged after ten seconds is an error, which ends the program.
    // What a topic took has to be sent on: the client's own limit would be lower than the topic's.
    producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0], "delivery.timeout.ms", "10000", "request.timeout.ms", "5000",
        "max.block.ms", "10000", "max.request.size", String.valueOf(32 << 20)), new ByteArraySerializer(), new ByteArraySerializer());
    var orders = List.of("order 1", "order 2", "order 3", "nonsense");
    for (String order : orders) producer.send(new ProducerRecord<>(topic, order.getBytes(), order.getBytes())).get();

    try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "billing",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.subscribe(List.of(topic, topic + ".retry"));
      int left = orders.size();  // A service would run for ever.
      while (left > 0) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          String tried = ours(record, "retry-tries", "");
          int tries = tried.matches("[0-9]{1,6}") ? Integer.parseInt(tried) + 1 : 1;
          boolean again = false;
          try {
            handle(text(record.value()), tries);
            System.out.println(text(record.value()) + ": done at try " + tries);
          } catch (Exception error) {
            again = tryAgainOrPutAside(record, tries, error);
          }
          consumer.commitSync(Map.of(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1)));
          if (!again) --left;
        }
      }
    }
    producer.close();
  }

  /** Only in the retry topic are these headers ours; elsewhere somebody else may use the same names. */
  static String ours(ConsumerRecord<?, ?> record, String name, String otherwise) {
    var found = record.headers().lastHeader(name);
    return !record.topic().equals(topic + ".retry") || found == null || found.value() == null ? otherwise : text(found.value());
  }

  static byte[] start(byte[] bytes) {
    return bytes == null || bytes.length <= CUT ? bytes : Arrays.copyOf(bytes, CUT);
  }

  static String text(byte[] value) {
    return value == null ? "" : new String(value, StandardCharsets.UTF_8);
  }

  static void put(ProducerRecord<?, ?> record, String name, String value) {
    record.headers().remove(name).add(name, value.getBytes(StandardCharsets.UTF_8));
  }
}
