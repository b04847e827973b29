// Runs Apache Kafka's task assignor and its configuration of topologies on cases from standard
// input. Names are in hex, "-" stands for a missing value. A case of the assignor is
//   assign REPLICAS
//   tasks SUBTOPOLOGY COUNT STATEFUL
//   member ID PROCESS ACTIVE STANDBY OFFSETS    S:1,2;S:3 for tasks, S:1=9,2=7;S:3=8 for offsets
//   end
// with one sorted line "ID ACTIVE STANDBY" per member as output. A case of a topology is
//   topology EPOCH
//   topic NAME PARTITIONS                       an existing topic
//   subtopology ID, and for each of them
//   source NAME, sink NAME, repartition TOPIC, changelog TOPIC, copartition SOURCES REPARTITIONS
//   end
// where TOPIC is NAME PARTITIONS REPLICATION CONFIGS. Its output has lines "subtopology", "create",
// "problem STATUS MESSAGE", "described" and "value". All outputs end with the line "end". If Kafka
// throws, the output is the line "failed ERROR".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.StreamsGroupDescribeResponseData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.GroupCoordinatorService;
import org.apache.kafka.coordinator.group.api.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.TaskAssignor;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredInternalTopic;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredTopology;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.LoggerFactory;

public class StreamsGroups {
    private static final PrintStream OUT = new PrintStream(
        new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);

    private interface Case {
        void add(String[] words);

        void answer() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Case current = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "assign" -> current = new AssignorCase(words);
                case "topology" -> current = new TopologyCase(words);
                case "end" -> {
                    try {
                        current.answer();
                    } catch (Exception error) {
                        OUT.println("failed " + error.getClass().getSimpleName());
                    }
                    OUT.println("end");
                }
                default -> current.add(words);
            }
        }
        OUT.flush();
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static List<String> listed(String word, String separator) {
        return word.equals("-") ? List.of() : Arrays.asList(word.split(separator));
    }

    private static String word(Collection<String> parts, String separator) {
        return parts.isEmpty() ? "-" : String.join(separator, parts);
    }

    private static final class AssignorCase implements Case, TopologyDescriber {
        private final TaskAssignor assignor = new StickyTaskAssignor();
        private final int replicas;
        private final List<String> subtopologies = new ArrayList<>();
        private final Map<String, Integer> counts = new HashMap<>();
        private final Set<String> stateful = new HashSet<>();
        private final Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();

        AssignorCase(String[] words) {
            replicas = Integer.parseInt(words[1]);
        }

        @Override
        public void add(String[] words) {
            String id = text(words[1]);
            if (words[0].equals("tasks")) {
                subtopologies.add(id);
                counts.put(id, Integer.parseInt(words[2]));
                if (words[3].equals("true")) {
                    stateful.add(id);
                }
            } else {
                members.put(id, new MemberMetadataAndStateImpl(
                    Optional.empty(), Optional.empty(), text(words[2]), Map.of(),
                    tasks(words[3]), tasks(words[4]), Map.of(), offsets(words[5]), Map.of()));
            }
        }

        private static Map<String, Set<Integer>> tasks(String word) {
            Map<String, Set<Integer>> found = new HashMap<>();
            for (String each : listed(word, ";")) {
                String[] parts = each.split(":");
                found.put(text(parts[0]), listed(parts[1], ",").stream()
                    .map(Integer::valueOf).collect(Collectors.toSet()));
            }
            return found;
        }

        private static Map<String, Map<Integer, Long>> offsets(String word) {
            Map<String, Map<Integer, Long>> found = new HashMap<>();
            for (String each : listed(word, ";")) {
                String[] parts = each.split(":");
                Map<Integer, Long> own = new HashMap<>();
                for (String pair : parts[1].split(",")) {
                    String[] sides = pair.split("=");
                    own.put(Integer.valueOf(sides[0]), Long.valueOf(sides[1]));
                }
                found.put(text(parts[0]), own);
            }
            return found;
        }

        @Override
        public List<String> subtopologies() {
            return subtopologies;
        }

        @Override
        public int maxNumInputPartitions(String subtopology) {
            return counts.get(subtopology);
        }

        @Override
        public boolean isStateful(String subtopology) {
            return stateful.contains(subtopology);
        }

        @Override
        public void answer() {
            Map<String, MemberAssignment> found = assignor.assign(
                new GroupSpecImpl(members, new AssignmentConfigsImpl(replicas, List.of())),
                this).members();
            Map<String, String> lines = new TreeMap<>();
            found.forEach((id, own) -> lines.put(
                hex(id), word(own.activeTasks()) + " " + word(own.standbyTasks())));
            lines.forEach((id, own) -> OUT.println(id + " " + own));
        }

        private static String word(Map<String, Set<Integer>> tasks) {
            Map<String, String> parts = new TreeMap<>();
            tasks.forEach((id, partitions) -> parts.put(hex(id), new TreeSet<>(partitions).stream()
                .map(String::valueOf).collect(Collectors.joining(","))));
            return StreamsGroups.word(
                parts.entrySet().stream().map(e -> e.getKey() + ":" + e.getValue()).toList(), ";");
        }
    }

    private static final class TopologyCase implements Case, CoordinatorMetadataImage {
        private final StreamsGroupHeartbeatRequestData.Topology topology;
        private final Map<String, Integer> topics = new HashMap<>();
        private StreamsGroupHeartbeatRequestData.Subtopology last;

        TopologyCase(String[] words) {
            topology = new StreamsGroupHeartbeatRequestData.Topology()
                .setEpoch(Integer.parseInt(words[1]));
        }

        @Override
        public void add(String[] words) {
            switch (words[0]) {
                case "topic" -> topics.put(text(words[1]), Integer.valueOf(words[2]));
                case "subtopology" -> {
                    last = new StreamsGroupHeartbeatRequestData.Subtopology()
                        .setSubtopologyId(text(words[1]));
                    topology.subtopologies().add(last);
                }
                case "source" -> last.sourceTopics().add(text(words[1]));
                case "sink" -> last.repartitionSinkTopics().add(text(words[1]));
                case "repartition" -> last.repartitionSourceTopics().add(topic(words));
                case "changelog" -> last.stateChangelogTopics().add(topic(words));
                default -> last.copartitionGroups().add(
                    new StreamsGroupHeartbeatRequestData.CopartitionGroup()
                        .setSourceTopics(places(words[1]))
                        .setRepartitionSourceTopics(places(words[2])));
            }
        }

        private static StreamsGroupHeartbeatRequestData.TopicInfo topic(String[] words) {
            List<StreamsGroupHeartbeatRequestData.KeyValue> configs = new ArrayList<>();
            for (String each : listed(words[4], ",")) {
                String[] sides = each.split("=");
                configs.add(new StreamsGroupHeartbeatRequestData.KeyValue()
                    .setKey(text(sides[0])).setValue(text(sides[1])));
            }
            return new StreamsGroupHeartbeatRequestData.TopicInfo()
                .setName(text(words[1]))
                .setPartitions(Integer.parseInt(words[2]))
                .setReplicationFactor(Short.parseShort(words[3]))
                .setTopicConfigs(configs);
        }

        private static List<Short> places(String word) {
            return listed(word, ",").stream().map(Short::valueOf).toList();
        }

        @Override
        public void answer() throws Exception {
            Method check = GroupCoordinatorService.class.getDeclaredMethod(
                "throwIfInvalidTopology", StreamsGroupHeartbeatRequestData.Topology.class);
            check.setAccessible(true);
            try {
                check.invoke(null, topology);
            } catch (InvocationTargetException error) {
                throw (Exception) error.getCause();
            }
            StreamsTopology given = StreamsTopology.fromHeartbeatRequest(topology);
            ConfiguredTopology found = InternalTopicManager.configureTopics(
                LoggerFactory.getLogger(StreamsGroups.class), "g", "m", 7L, given, this,
                Time.SYSTEM);
            found.subtopologies().ifPresent(all -> all.forEach((id, each) -> OUT.println(
                "subtopology " + hex(id) + " " + each.numberOfTasks()
                    + " " + sorted(each.sourceTopics())
                    + " " + internal(each.repartitionSourceTopics())
                    + " " + sorted(each.repartitionSinkTopics())
                    + " " + internal(each.stateChangelogTopics()))));
            found.topicConfigurationException().ifPresent(problem ->
                OUT.println("problem " + problem.status().code() + " " + problem.getMessage()));
            new TreeMap<>(found.internalTopicsToBeCreated()).forEach((name, each) -> OUT.println(
                "create " + hex(name) + ":" + each.numPartitions() + ":" + each.replicationFactor()
                    + ":" + StreamsGroups.word(each.configs().stream().map(config ->
                        hex(config.name()) + "=" + hex(config.value())).sorted().toList(), ",")));
            describe("described", found.asStreamsGroupDescribeTopology());
            describe("value", given.asStreamsGroupDescribeTopology());
        }

        private static String sorted(Set<String> names) {
            return StreamsGroups.word(
                names.stream().map(StreamsGroups::hex).sorted().toList(), ",");
        }

        private static String internal(Map<String, ConfiguredInternalTopic> topics) {
            return StreamsGroups.word(topics.values().stream().map(topic ->
                hex(topic.name()) + ":" + topic.numberOfPartitions()
                    + ":" + topic.replicationFactor().map(String::valueOf).orElse("-")
                    + ":" + StreamsGroups.word(topic.topicConfigs().entrySet().stream()
                        .map(e -> hex(e.getKey()) + "=" + hex(e.getValue())).sorted().toList(), ",")
            ).sorted().toList(), ";");
        }

        private static void describe(
            String kind, StreamsGroupDescribeResponseData.Topology described
        ) {
            described.subtopologies().forEach(each -> OUT.println(
                kind + " " + described.epoch() + " " + hex(each.subtopologyId())
                    + " " + names(each.sourceTopics()) + " " + names(each.repartitionSinkTopics())
                    + " " + infos(each.stateChangelogTopics())
                    + " " + infos(each.repartitionSourceTopics())));
        }

        private static String names(List<String> names) {
            return StreamsGroups.word(names.stream().map(StreamsGroups::hex).toList(), ",");
        }

        private static String infos(List<StreamsGroupDescribeResponseData.TopicInfo> topics) {
            return StreamsGroups.word(topics.stream().map(topic ->
                hex(topic.name()) + ":" + topic.partitions() + ":" + topic.replicationFactor()
                    + ":" + StreamsGroups.word(topic.topicConfigs().stream()
                        .map(e -> hex(e.key()) + "=" + hex(e.value())).toList(), ",")
            ).toList(), ";");
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(String name) {
            if (!topics.containsKey(name)) {
                return Optional.empty();
            }
            return Optional.of(new TopicMetadata() {
                @Override
                public String name() {
                    return name;
                }

                @Override
                public Uuid id() {
                    return Uuid.ONE_UUID;
                }

                @Override
                public int partitionCount() {
                    return topics.get(name);
                }

                @Override
                public List<String> partitionRacks(int partition) {
                    return List.of();
                }
            });
        }

        @Override
        public Set<Uuid> topicIds() {
            return Set.of();
        }

        @Override
        public Set<String> topicNames() {
            return topics.keySet();
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.empty();
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            return CoordinatorMetadataDelta.EMPTY;
        }

        @Override
        public long version() {
            return 1;
        }

        @Override
        public boolean isEmpty() {
            return topics.isEmpty();
        }
    }
}
