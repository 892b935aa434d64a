import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Cancel if unpaid: an order that is not paid in time is cancelled.
 *
 * <pre>CancelIfUnpaid BROKERS TOPIC [DELAY_MS]</pre>
 */
public class CancelIfUnpaid {
  static String topic;
  static String delay = "30000";
  static KafkaProducer<String, String> producer;
  static final Map<String, String> state = new HashMap<>();  // Stands for your database: order -> "open", "paid" or "cancelled".

  /** The key takes all records of one order to one partition. */
  static void send(String order, String name, String value) throws Exception {
    var record = new ProducerRecord<>(topic, order, order);
    record.headers().add("x-schedule-id", order.getBytes(StandardCharsets.UTF_8));
    record.headers().add(name, value.getBytes(StandardCharsets.UTF_8));
    producer.send(record).get();
  }

  static void place(String order) throws Exception {
    // The timeout first: a crash in between leaves a timeout without an order, which does nothing.
    // The other way round it would leave an order that is never cancelled.
    send(order, "x-delay", delay);
    state.put(order, "open");
  }

  static void pay(String order, boolean crash) throws Exception {
    // The database first, and it decides: it refuses an order that is cancelled already.
    if (!state.get(order).equals("open")) throw new IllegalStateException(order + " is " + state.get(order));
    state.put(order, "paid");
    if (!crash) send(order, "x-schedule-action", "cancel");
  }

  static void onTimeout(String order) {
    // One conditional update, so that a payment at the same moment wins or loses as a whole:
    // UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
    if (state.replace(order, "open", "cancelled")) {
      System.out.println(order + ": not paid in time, cancelled");
    } else {
      System.out.println(order + ": " + state.getOrDefault(order, "never placed") + ", nothing to do");
    }
  }

  public static void main(String[] args) throws Exception {
    topic = args[1];
    if (args.length > 2) delay = args[2];
    producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0]), new StringSerializer(), new StringSerializer());
    for (String order : List.of("order-1", "order-2", "order-3")) place(order);
    pay("order-2", false);  // Its timeout never comes.
    pay("order-3", true);  // Its timeout comes, and finds that it is paid.

    try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "order-timeouts",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic));
      for (int left = 2; left > 0;) {  // A service would run for ever.
        var records = consumer.poll(Duration.ofSeconds(1));
        for (var record : records) onTimeout(record.value());
        consumer.commitSync();  // All that poll() returned.
        left -= records.count();
      }
    }
    producer.close();
  }
}
