import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Cancel if unpaid: an order that is not paid in time is cancelled.
 *
 * <pre>CancelIfUnpaid BROKERS TOPIC [DELAY_MS [FILE]]</pre>
 *
 * TOPIC has all events of all orders, each with its order as key: "placed", "paid", and the "timeout" that this program sends.
 * With FILE, which stands for your database, it is a service: it handles what others send, until SIGTERM or Ctrl-C. Without FILE
 * it plays the shop too, and ends by itself.
 */
public class CancelIfUnpaid {
  static String topic;
  static String delay = "30000";
  static Path file;
  static KafkaProducer<String, String> producer;
  static final Properties state = new Properties();  // Order -> "open", "paid", "cancelled" or "to be refunded".
  static volatile boolean running = true;

  static void store(String order, String what) throws Exception {
    state.setProperty(order, what);
    if (file == null) return;
    try (var out = Files.newBufferedWriter(file)) {
      state.store(out, null);
    }
  }

  /** The key takes all events of one order to one partition. */
  static void send(String order, String event, Integer partition, Map<String, String> headers) throws Exception {
    var record = new ProducerRecord<>(topic, partition, order, event);
    headers.forEach((name, value) -> record.headers().add(name, value.getBytes(StandardCharsets.UTF_8)));
    producer.send(record).get();
  }

  static void place(String order, int partition) throws Exception {
    // The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
    if (state.containsKey(order)) return;
    // The timeout first: a crash in between leaves a timeout without an order, which does nothing.
    // The other way round it would leave an order that is never cancelled.
    // In the partition of the other events, it is behind all payments that came before it was due.
    send(order, "timeout", partition, Map.of("x-schedule-id", "order/" + order, "x-delay", delay));
    store(order, "open");  // INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING
  }

  static void pay(String order, int partition) throws Exception {
    // The database first, and it decides: INSERT INTO orders VALUES (?, 'paid')
    // ON CONFLICT (id) DO UPDATE SET state = 'paid' WHERE orders.state = 'open'
    if (state.getProperty(order, "open").equals("open")) store(order, "paid");
    if (state.getProperty(order).equals("paid")) {
      // Also when the event comes again: the program may have crashed here.
      send(order, null, partition, Map.of("x-schedule-id", "order/" + order, "x-schedule-action", "cancel"));
    } else if (state.getProperty(order).equals("cancelled")) {
      store(order, "to be refunded");
      System.out.println(order + ": paid too late, to be refunded");
    }
  }

  static void onTimeout(String order) throws Exception {
    // One conditional update, so that a payment at the same moment wins or loses as a whole:
    // UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
    if (state.getProperty(order, "").equals("open")) {
      store(order, "cancelled");
      System.out.println(order + ": not paid in time, cancelled");
    } else {
      System.out.println(order + ": " + state.getProperty(order, "never placed") + ", nothing to do");
    }
  }

  static void handle(ConsumerRecord<String, String> record) throws Exception {
    String order = record.key() == null ? "" : record.key();
    String event = String.valueOf(record.value());
    int bytes = order.getBytes(StandardCharsets.UTF_8).length;
    // An id has at most 249 bytes of UTF-8. A timeout that is refused would stop all events behind this one for ever.
    // U+FFFD stands for bytes that are none: several orders would become one.
    if (bytes == 0 || bytes > 200 || order.indexOf('\uFFFD') >= 0) System.out.println("an order of " + bytes + " bytes, put aside");
    else if (event.equals("placed")) place(order, record.partition());
    else if (event.equals("paid")) pay(order, record.partition());
    else if (event.equals("timeout")) onTimeout(order);  // Others may send other events.
  }

  public static void main(String[] args) throws Exception {
    topic = args[1];
    if (args.length > 2) delay = args[2];
    if (args.length > 3) file = Path.of(args[3]);
    if (file != null && Files.exists(file)) {
      try (var in = Files.newBufferedReader(file)) {
        state.load(in);
      }
    }
    // A record that the broker has not acknowledged after ten seconds is an error, which ends the program.
    producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0], "delivery.timeout.ms", "10000", "request.timeout.ms", "5000",
        "max.block.ms", "10000"), new StringSerializer(), new StringSerializer());
    if (file == null) {
      send("order-1", "placed", null, Map.of());
      // Some events come twice, and change nothing. The timeout of this order never comes.
      for (String event : List.of("placed", "paid", "paid", "placed")) send("order-2", event, null, Map.of());
    }

    // SIGTERM and Ctrl-C run the hook, and the JVM ends when it returns: when main has left the group.
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
      while (running && (file != null || !state.getProperty("order-1", "").equals("cancelled"))) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) handle(record);
        consumer.commitSync();  // All that poll() returned.
      }
    }  // Closing it leaves the group, so that the other members need not wait for a timeout.
    if (running) pay("order-1", 0);
    producer.close();
  }
}
