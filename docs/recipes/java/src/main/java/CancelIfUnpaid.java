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
  static final Map<String, String> state = new HashMap<>();  // Stands for your database: order -> "open", "paid", "cancelled" or "to be refunded".
  static volatile boolean running = true;

  /** The key takes all records of one order to one partition. */
  static void send(String order, String name, String value) throws Exception {
    var record = new ProducerRecord<>(topic, order, order);
    record.headers().add("x-schedule-id", order.getBytes(StandardCharsets.UTF_8));
    record.headers().add(name, value.getBytes(StandardCharsets.UTF_8));
    producer.send(record).get();
  }

  static void place(String order) throws Exception {
    // The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
    if (state.containsKey(order)) return;
    // The timeout first: a crash in between leaves a timeout without an order, which does nothing.
    // The other way round it would leave an order that is never cancelled.
    send(order, "x-delay", delay);
    state.put(order, "open");  // INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING
  }

  static void pay(String order, boolean crash) throws Exception {
    if (!state.containsKey(order)) throw new IllegalStateException(order + " is not placed yet");  // Try again later.
    // The database first, and it decides: UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'open'
    state.replace(order, "open", "paid");
    if (state.get(order).equals("paid")) {
      // Also when the event comes again: the program may have crashed here.
      if (!crash) send(order, "x-schedule-action", "cancel");
    } else if (state.replace(order, "cancelled", "to be refunded")) {
      System.out.println(order + ": paid too late, to be refunded");
    }
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
    pay("order-2", false);  // Both events come again, and change nothing.
    place("order-2");

    // SIGTERM runs the hook, and the JVM ends when it returns: when main has left the group.
    var main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      running = false;
      try {
        main.join();
      } catch (InterruptedException ignored) {
      }
    }));
    try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", args[0], "group.id", "order-timeouts",
             "enable.auto.commit", "false", "auto.offset.reset", "earliest"), new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic));
      for (int left = 2; left > 0 && running;) {  // A service would run until it is stopped.
        var records = consumer.poll(Duration.ofSeconds(1));
        for (var record : records) onTimeout(record.value());
        consumer.commitSync();  // All that poll() returned.
        left -= records.count();
      }
    }  // Closing it leaves the group, so that the other members need not wait for a timeout.
    if (running) pay("order-1", false);
    producer.close();
  }
}
