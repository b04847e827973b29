import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer that runs the commands of its standard input, line by line.
 *
 * <p>Arguments: settings as KEY=VALUE. The output for each line is "ok", or "failed" and the error.
 */
public final class Transactor {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        for (String word : words) {
            String[] pair = word.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                try {
                    act(producer, line.split(" "));
                    System.out.println("ok");
                } catch (Exception error) {
                    System.out.println("failed " + error.toString().replace('\n', ' '));
                }
                System.out.flush();
            }
                        // Closing the producer would wait for brokers that may not run.
            Runtime.getRuntime().halt(0);
        }
    }

    private static void act(KafkaProducer<String, String> producer, String[] asked) throws Exception {
        switch (asked[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer
                .send(new ProducerRecord<>(asked[1], Integer.parseInt(asked[2]), null, asked[3]))
                .get();
            case "offset" -> producer.sendOffsetsToTransaction(
                Map.of(
                    new TopicPartition(asked[2], Integer.parseInt(asked[3])),
                    new OffsetAndMetadata(Long.parseLong(asked[4]))),
                new ConsumerGroupMetadata(asked[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(asked[0]);
        }
    }
}
