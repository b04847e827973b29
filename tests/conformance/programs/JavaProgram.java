import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/** The Java client; the actions are those of the programs in Python. */
public final class JavaProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    private static final Map<String, String> STRATEGIES = Map.of(
        "range", ASSIGNORS + "RangeAssignor",
        "sticky", ASSIGNORS + "StickyAssignor",
        "cooperative-sticky", ASSIGNORS + "CooperativeStickyAssignor");

    private JavaProgram() {
    }

    public static void main(String[] words) throws Exception {
        Object result = act(words[0], JSON.readTree(words[1]));
        if (result != null) {
            report(result);
        }
        System.exit(0);
    }

    private static Object act(String action, JsonNode arguments) throws Exception {
        return switch (action) {
            case "all" -> all(arguments);
            case "version" -> Map.of("version", AppInfoParser.getVersion());
            case "admin" -> admin(arguments);
            case "produce" -> produce(arguments);
            case "consume" -> consume(arguments);
            case "offsets" -> offsets(arguments);
            case "visit" -> visit(arguments);
            case "pause" -> pause(arguments);
            case "errors" -> errors(arguments);
            case "transactions" -> transactions(arguments);
            case "fence" -> fence(arguments);
            case "member" -> member(arguments);
            default -> throw new IllegalArgumentException(action);
        };
    }

    private static Object all(JsonNode arguments) throws Exception {
        List<Object> results = new ArrayList<>();
        for (JsonNode call : arguments.get("calls")) {
            results.add(act(call.get(0).asText(), call.get(1)));
        }
        return Map.of("results", results);
    }

    private static void report(Object event) throws Exception {
        String line = JSON.writeValueAsString(event);
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static Properties settings(JsonNode arguments, String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.get("bootstrap").asText());
        for (int i = 0; i < more.length; i += 2) {
            settings.put(more[i], more[i + 1]);
        }
        return settings;
    }

    private static KafkaConsumer<String, String> consumer(JsonNode arguments, String... more) {
        Properties settings = settings(arguments, more);
        settings.put("key.deserializer", STRINGS + "Deserializer");
        settings.put("value.deserializer", STRINGS + "Deserializer");
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings);
    }

    private static KafkaProducer<String, String> producer(JsonNode arguments, String... more) {
        Properties settings = settings(arguments, more);
        settings.put("key.serializer", STRINGS + "Serializer");
        settings.put("value.serializer", STRINGS + "Serializer");
        return new KafkaProducer<>(settings);
    }

    /** Returns the error code of a call; 0 if it succeeds. */
    private static int codeOf(Future<?> call) throws InterruptedException {
        try {
            call.get();
            return 0;
        } catch (ExecutionException problem) {
            return Errors.forException(problem.getCause()).code();
        }
    }

    private static String retention(Admin client, ConfigResource topic) throws Exception {
        return client.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value();
    }

    private static Integer partitions(Admin client, String topic) throws Exception {
        try {
            return client.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (ExecutionException unknown) {
            return null;
        }
    }

    private static boolean isListed(Admin client, String topic) throws Exception {
        return client.listTopics().names().get().contains(topic);
    }

    /** Calls `read` until it returns the expected value, because brokers apply changes later. */
    private static <T> T eventually(Callable<T> read, T expected) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        T found = read.call();
        while (!expected.equals(found) && System.nanoTime() < deadline) {
            Thread.sleep(20);
            found = read.call();
        }
        return found;
    }

    private static Object admin(JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        try (Admin client = Admin.create(settings(arguments))) {
            Map<String, Object> result = new LinkedHashMap<>();
            NewTopic made = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "60000"));
            client.createTopics(List.of(made)).all().get();
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            result.put("partitions", eventually(() -> partitions(client, topic), 2));
            result.put("config", eventually(() -> retention(client, resource), "60000"));
            result.put("listed", eventually(() -> isListed(client, topic), true));
            result.put("again", codeOf(client.createTopics(List.of(made)).all()));
            client.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            result.put("grown", eventually(() -> partitions(client, topic), 4));
            AlterConfigOp set = new AlterConfigOp(
                new ConfigEntry("retention.ms", "120000"), AlterConfigOp.OpType.SET);
            client.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            result.put("altered", eventually(() -> retention(client, resource), "120000"));
            client.deleteTopics(List.of(topic)).all().get();
            result.put("left", eventually(() -> isListed(client, topic), false));
            KafkaFuture<Void> again = client.deleteTopics(List.of(topic)).all();
            result.put("unknown", codeOf(again));
            return result;
        }
    }

    private static Object produce(JsonNode arguments) throws Exception {
        String compression = arguments.get("compression").asText();
        String topic = arguments.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = producer(arguments, "compression.type", compression, "linger.ms", "50")) {
            for (JsonNode each : arguments.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : each.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), header.get(1).asText().getBytes()));
                }
                sent.add(producer.send(new ProducerRecord<>(
                    topic, 0, each.get("timestamp").asLong(), text(each.get("key")),
                    text(each.get("value")), headers)));
            }
            producer.flush();
        }
        List<Long> found = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            found.add(each.get().offset());
        }
        return Map.of("offsets", found);
    }

    private static KafkaProducer<String, String> transactional(JsonNode arguments) {
        var producer = producer(arguments, "transactional.id", arguments.get("transactional_id").asText());
        producer.initTransactions();
        return producer;
    }

    private static Object transactions(JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        var member = new ConsumerGroupMetadata(arguments.get("group").asText());
        try (var producer = transactional(arguments)) {
            for (JsonNode each : arguments.get("transactions")) {
                producer.beginTransaction();
                for (int partition = 0; partition < each.get("values").size(); partition++) {
                    String value = each.get("values").get(partition).asText();
                    producer.send(new ProducerRecord<>(topic, partition, null, value));
                }
                var offset = new OffsetAndMetadata(each.get("offset").asLong());
                producer.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), offset), member);
                if (each.get("commits").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        List<String> read = new ArrayList<>();
        try (var consumer = consumer(arguments, "isolation.level", "read_committed")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            while (read.size() < arguments.get("count").asInt()) {
                consumer.poll(Duration.ofMillis(500)).forEach(each -> read.add(each.value()));
            }
        }
        return Map.of("read", read);
    }

    private static Object fence(JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        try (var old = transactional(arguments)) {
            old.beginTransaction();
            old.send(new ProducerRecord<>(topic, 0, null, "old"));
            old.flush();
            try (var successor = transactional(arguments)) {
                successor.beginTransaction();
                successor.send(new ProducerRecord<>(topic, 0, null, "successor"));
                successor.commitTransaction();
            }
            try {
                old.commitTransaction();
            } catch (ProducerFencedException fenced) {
                return Map.of("fenced", true);
            }
        }
        return Map.of("fenced", false);
    }

    private static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    private static Object shown(ConsumerRecord<String, String> each) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : each.headers()) {
            headers.add(List.of(header.key(), new String(header.value())));
        }
        Map<String, Object> shown = new HashMap<>();
        shown.put("offset", each.offset());
        shown.put("key", each.key());
        shown.put("value", each.value());
        shown.put("timestamp", each.timestamp());
        shown.put("headers", headers);
        return shown;
    }

    private static Object consume(JsonNode arguments) {
        TopicPartition partition = new TopicPartition(arguments.get("topic").asText(), 0);
        List<Object> records = new ArrayList<>();
        try (var consumer = consumer(arguments)) {
            consumer.assign(List.of(partition));
            if (arguments.has("timestamp")) {
                long at = arguments.get("timestamp").asLong();
                consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, at)).get(partition).offset());
            }
            while (records.size() < arguments.get("count").asInt()) {
                consumer.poll(Duration.ofMillis(500)).forEach(each -> records.add(shown(each)));
            }
        }
        return Map.of("records", records);
    }

    private static Object offsets(JsonNode arguments) {
        TopicPartition partition = new TopicPartition(arguments.get("topic").asText(), 0);
        List<Long> found = new ArrayList<>();
        try (var consumer = consumer(arguments)) {
            for (JsonNode at : arguments.get("timestamps")) {
                found.add(consumer.offsetsForTimes(Map.of(partition, at.asLong())).get(partition).offset());
            }
        }
        return Map.of("offsets", found);
    }

    /** Reads from several offsets with one consumer; null is its first position. */
    private static Object visit(JsonNode arguments) {
        TopicPartition partition = new TopicPartition(arguments.get("topic").asText(), 0);
        List<Object> found = new ArrayList<>();
        String isolation = arguments.get("isolation").asText();
        String reset = arguments.path("reset").asText("earliest");
        try (var consumer = consumer(arguments, "isolation.level", isolation, "auto.offset.reset", reset)) {
            consumer.assign(List.of(partition));
            for (JsonNode visit : arguments.get("visits")) {
                List<Object> records = new ArrayList<>();
                if (!visit.get(0).isNull()) {
                    consumer.seek(partition, visit.get(0).asLong());
                }
                while (records.size() < visit.get(1).asInt()) {
                    consumer.poll(Duration.ofMillis(500)).forEach(each -> records.add(
                        List.of(each.offset(), Integer.parseInt(each.value().split(":")[0]))));
                }
                found.add(records.subList(0, visit.get(1).asInt()));
            }
        }
        return Map.of("visits", found);
    }

    private static Object pause(JsonNode arguments) {
        String topic = arguments.get("topic").asText();
        int count = arguments.get("count").asInt();
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        int[] got = new int[2];
        try (var consumer = consumer(arguments)) {
            consumer.assign(List.of(first, second));
            consumer.pause(Set.of(first));
            while (got[1] < count) {
                consumer.poll(Duration.ofMillis(200)).forEach(each -> got[each.partition()]++);
            }
            consumer.poll(Duration.ofMillis(200)).forEach(each -> got[each.partition()]++);
            Map<String, Integer> paused = Map.of("0", got[0], "1", got[1]);
            consumer.resume(Set.of(first));
            while (got[0] < count) {
                consumer.poll(Duration.ofMillis(200)).forEach(each -> got[each.partition()]++);
            }
            return Map.of("paused", paused, "resumed", Map.of("0", got[0], "1", got[1]));
        }
    }

    private static Object errors(JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        Map<String, Object> found = new HashMap<>();
        try (var producer = producer(arguments)) {
            found.put("too_large", codeOf(producer.send(new ProducerRecord<>(topic, "x".repeat(5000)))));
        }
        try (var consumer = consumer(arguments, "auto.offset.reset", "none")) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1000);
            while (!found.containsKey("out_of_range")) {
                try {
                    consumer.poll(Duration.ofMillis(200));
                } catch (OffsetOutOfRangeException problem) {
                    found.put("out_of_range", (int) Errors.OFFSET_OUT_OF_RANGE.code());
                }
            }
        }
        return found;
    }

    private static Object member(JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        String strategy = arguments.has("strategy") ? arguments.get("strategy").asText() : "range";
        List<String> more = new ArrayList<>(List.of(
            "group.id", arguments.get("group").asText()));
        if (arguments.has("protocol") && arguments.get("protocol").asText().equals("consumer")) {
            more.addAll(List.of("group.protocol", "consumer"));
        } else {
            more.addAll(List.of(
                "group.protocol", "classic",
                "session.timeout.ms", arguments.get("session_timeout_ms").asText(),
                "heartbeat.interval.ms", "300",
                "partition.assignment.strategy", STRATEGIES.get(strategy)));
        }
        if (arguments.has("instance_id")) {
            more.addAll(List.of("group.instance.id", arguments.get("instance_id").asText()));
        }
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    Thread.onSpinWait();
                }
            } catch (java.io.IOException problem) {
                System.err.println(problem);
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        Set<Integer> reported = null;
        try (var consumer = consumer(arguments, more.toArray(String[]::new))) {
            consumer.subscribe(List.of(topic));
            while (!ended.get()) {
                List<String> values = new ArrayList<>();
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                records.forEach(each -> values.add(each.value()));
                Set<Integer> now = indexes(consumer.assignment());
                if (!now.equals(reported)) {
                    report(Map.of("partitions", now));
                    reported = now;
                }
                if (values.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync();
                    report(Map.of("values", values));
                } catch (CommitFailedException | RebalanceInProgressException problem) {
                    // The group is in another generation. The new owner reads the records again.
                    report(Map.of("commit", String.valueOf(problem.getMessage())));
                    for (TopicPartition partition : records.partitions()) {
                        if (consumer.assignment().contains(partition)) {
                            consumer.seek(partition, records.records(partition).get(0).offset());
                        }
                    }
                }
            }
        }
        return null;
    }

    private static Set<Integer> indexes(Collection<TopicPartition> partitions) {
        Set<Integer> indexes = new TreeSet<>();
        partitions.forEach(each -> indexes.add(each.partition()));
        return indexes;
    }
}
