import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A share consumer; the value of each record is its acknowledge type: accept, release, reject or renew.
 *
 * <p>Released and renewed records are accepted at the next delivery. Arguments: bootstrap servers, group, topic,
 * number of records. It prints value and delivery count of each received record.
 */
public final class ShareAcknowledger {
    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        int left = Integer.parseInt(words[3]);
        Set<Long> repeated = new HashSet<>();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(words[2]));
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.value() + " " + record.deliveryCount().orElse((short) -1));
                    AcknowledgeType type = AcknowledgeType.valueOf(record.value().toUpperCase());
                    boolean comesAgain = type == AcknowledgeType.RELEASE || type == AcknowledgeType.RENEW;
                    if (comesAgain && repeated.add(record.offset())) {
                        consumer.acknowledge(record, type);
                        continue;
                    }
                    consumer.acknowledge(record, comesAgain ? AcknowledgeType.ACCEPT : type);
                    left--;
                }
                Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
                results.values().forEach(error -> error.ifPresent(each -> System.out.println(each)));
            }
        }
    }
}
