import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * Counts the words of the topic IN into the topic OUT, until its standard input ends.
 *
 * <p>Arguments: IN, OUT, and settings of Kafka Streams as KEY=VALUE. The line "add" on standard input
 * starts another instance with a separate state directory; "remove" closes the last instance. It prints
 * the states of each instance by its number, and the number of changelog records that restored a store.
 */
public final class WordCount {
    private static final Duration TIMEOUT = Duration.ofSeconds(120);
    private static final Deque<KafkaStreams> INSTANCES = new ArrayDeque<>();

    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition changelog, String store, long start, long end) {
        }

        @Override
        public void onBatchRestored(TopicPartition changelog, String store, long end, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition changelog, String store, long count) {
            System.out.println("restored " + store + " " + changelog.partition() + " " + count);
        }
    }

    public static void main(String[] words) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        add(words);
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (line.equals("add")) {
                add(words);
            } else if (line.equals("remove")) {
                int number = INSTANCES.size();
                boolean closed = INSTANCES.pop().close(TIMEOUT);
                System.out.println((closed ? "closed " : "not closed in time ") + number);
            }
        }
        boolean closed = true;
        while (!INSTANCES.isEmpty()) {
            closed &= INSTANCES.pop().close(TIMEOUT);
        }
        System.out.println(closed ? "closed" : "not closed in time");
        System.exit(closed ? 0 : 1);
    }

    private static void add(String[] words) {
        int number = INSTANCES.size() + 1;
        Properties settings = new Properties();
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        for (String word : Arrays.copyOfRange(words, 2, words.length)) {
            String[] pair = word.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        String directory = settings.getProperty(StreamsConfig.STATE_DIR_CONFIG);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory + "/" + number);
        String client = settings.getProperty(StreamsConfig.CLIENT_ID_CONFIG);
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, client + "-" + number);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(words[0])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .selectKey((key, word) -> word)
            .groupByKey(Grouped.as("by-word"))
            .count(Materialized.as("counts"))
            .toStream()
            .to(words[1], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener(
            (now, before) -> System.out.println("state " + number + " " + now));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.start();
        INSTANCES.push(streams);
    }
}
