import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;

/** Actions of Java clients from 0.9 on. Arguments: BOOTSTRAP, then actions with their arguments. */
public final class OldJavaProgram {
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";

    private OldJavaProgram() {
    }

    public static void main(String[] words) throws Exception {
        List<String> results = new ArrayList<>();
        for (int i = 1; i < words.length; i += 4) {
            String topic = words[i + 1];
            int count = Integer.parseInt(words[i + 3]);
            results.add(switch (words[i]) {
                case "produce" -> produce(words[0], topic, words[i + 2], count);
                case "consume" -> consume(words[0], topic, words[i + 2], count);
                case "too-large" -> tooLarge(words[0], topic, count);
                default -> throw new IllegalArgumentException(words[i]);
            });
        }
        System.out.println("[" + String.join(",", results) + "]");
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String compression) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", compression);
        settings.put("acks", "all");
        settings.put("linger.ms", "50");
        settings.put("key.serializer", STRINGS + "Serializer");
        settings.put("value.serializer", STRINGS + "Serializer");
        return new KafkaProducer<>(settings);
    }

    /** Produces COUNT records k-0: v-0 and so on, every third without a key; returns the offsets. */
    private static String produce(String bootstrap, String topic, String compression, int count)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(bootstrap, compression)) {
            for (int i = 0; i < count; i++) {
                String key = i % 3 == 0 ? null : "k-" + i;
                sent.add(producer.send(new ProducerRecord<>(topic, 0, key, "v-" + i)));
            }
        }
        List<String> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(Long.toString(each.get().offset()));
        }
        return "[" + String.join(",", offsets) + "]";
    }

    /** Reads COUNT records as a group member, and commits; returns offset, key and value of each. */
    private static String consume(String bootstrap, String topic, String group, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", STRINGS + "Deserializer");
        settings.put("value.deserializer", STRINGS + "Deserializer");
        List<String> records = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                }

                // Nothing is committed yet, so a member that rejoins reads all records again.
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    records.clear();
                }
            });
            while (records.size() < count) {
                for (ConsumerRecord<String, String> each : consumer.poll(500)) {
                    records.add(shown(each));
                }
            }
            consumer.commitSync();
        }
        return "[" + String.join(",", records) + "]";
    }

    private static String shown(ConsumerRecord<String, String> each) {
        return List.of(quoted(each.key()), quoted(each.value())).stream()
            .collect(Collectors.joining(",", "[" + each.offset() + ",", "]"));
    }

    private static String quoted(String text) {
        return text == null ? "null" : '"' + text + '"';
    }

    private static String tooLarge(String bootstrap, String topic, int size) throws Exception {
        try (KafkaProducer<String, String> producer = producer(bootstrap, "none")) {
            producer.send(new ProducerRecord<>(topic, "x".repeat(size))).get();
            return "false";
        } catch (ExecutionException problem) {
            return Boolean.toString(problem.getCause() instanceof RecordTooLargeException);
        }
    }
}
