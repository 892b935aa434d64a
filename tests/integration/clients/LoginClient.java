// The Java client with a login:  java -cp ... LoginClient.java CLIENT_PROPERTIES TOPIC SECONDS
// Sends one record, and then for SECONDS one each 50 ms, over one connection; reads all of them and prints how many
// came and how many connections the producer opened.
import java.io.FileReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class LoginClient {
  public static void main(String[] words) throws Exception {
    var settings = new Properties();
    try (var file = new FileReader(words[0])) {
      settings.load(file);
    }
    long until = 0;
    int sent = 0;
    long connections = 0;
    try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      do {
        producer.send(new ProducerRecord<>(words[1], "java " + sent)).get();
        // A slow start does not count.
        if (++sent == 1) until = System.nanoTime() + (long) (Double.parseDouble(words[2]) * 1e9);
        Thread.sleep(50);
      } while (System.nanoTime() < until);
      for (var metric : producer.metrics().values())
        if (metric.metricName().name().equals("connection-creation-total") && metric.metricName().group().equals("producer-metrics"))
          connections = ((Number) metric.metricValue()).longValue();
    }
    int read = 0;
    var partition = new TopicPartition(words[1], 0);
    try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.assign(List.of(partition));
      consumer.seekToBeginning(List.of(partition));
      long end = consumer.endOffsets(List.of(partition)).get(partition);
      while (consumer.position(partition) < end) read += consumer.poll(Duration.ofMillis(200)).count();
    }
    System.out.println(sent + " " + read + " " + connections);
  }
}
