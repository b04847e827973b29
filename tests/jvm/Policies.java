import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Policies for test_policies.py: certain words in a request cause an error. */
public class Policies {
    private static void judge(String request, String metadata) {
        if (request.contains("refused") || request.contains("111111")) {
            throw new PolicyViolationException(metadata);
        }
        if (request.contains("broken") || request.contains("222222")) {
            throw new IllegalStateException(metadata);
        }
    }

    public static class Topics implements CreateTopicPolicy {
        private String word;

        @Override
        public void configure(Map<String, ?> configs) {
            word = String.valueOf(configs.get("test.word"));
        }

        @Override
        public void validate(RequestMetadata metadata) {
            Map<Integer, ?> assigned = metadata.replicasAssignments();
            judge(metadata.topic(), String.join(" ", word, metadata.topic(),
                String.valueOf(metadata.numPartitions()),
                String.valueOf(metadata.replicationFactor()),
                assigned == null ? "null" : new TreeMap<>(assigned).toString(),
                new TreeMap<>(metadata.configs()).toString()));
        }

        @Override
        public void close() {
        }
    }

    public static class Configs implements AlterConfigPolicy {
        @Override
        public void configure(Map<String, ?> configs) {
        }

        @Override
        public void validate(RequestMetadata metadata) {
            String values = new TreeMap<>(metadata.configs()).toString();
            judge(values, String.join(" ", metadata.resource().type().name(),
                metadata.resource().name(), values));
        }

        @Override
        public void close() {
        }
    }
}
