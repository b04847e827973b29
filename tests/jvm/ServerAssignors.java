// Runs the assignors of Apache Kafka's group coordinator on cases from standard input. A case is
//   case ASSIGNOR TYPE              TYPE is HOMOGENEOUS or HETEROGENEOUS
//   topic ID COUNT ASSIGNABLE       ID in hex; ASSIGNABLE is a list of numbers, * for all
//   member ID INSTANCE TOPICS TARGET    names in hex; TARGET is TOPIC:1,2;TOPIC:3; "-" for nothing
//   end
// The output is one sorted line "ID TARGET" per member, and a line "end". A target lacks empty
// topics. If the assignor throws, the output is the line "failed ERROR".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class ServerAssignors {
    private static final PrintStream OUT = new PrintStream(
        new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);

    private final PartitionAssignor assignor;
    private final SubscriptionType type;
    private final Map<Uuid, Integer> counts = new HashMap<>();
    private final Map<Uuid, Set<Integer>> assignable = new HashMap<>();
    private final Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
    private final Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
    private boolean limited;

    private ServerAssignors(String assignor, String type) {
        this.assignor = switch (assignor) {
            case "range" -> new RangeAssignor();
            case "uniform" -> new UniformAssignor();
            default -> new SimpleAssignor();
        };
        this.type = SubscriptionType.valueOf(type);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        ServerAssignors current = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case" -> current = new ServerAssignors(words[1], words[2]);
                case "topic" -> current.addTopic(words);
                case "member" -> current.addMember(words);
                default -> current.answer();
            }
        }
        OUT.flush();
    }

    private void addTopic(String[] words) {
        Uuid topic = uuid(words[1]);
        counts.put(topic, Integer.parseInt(words[2]));
        if (!words[3].equals("*")) {
            limited = true;
            assignable.put(topic, new HashSet<>(numbers(words[3])));
        }
    }

    private void addMember(String[] words) {
        String id = text(words[1]);
        Set<Uuid> topics = new LinkedHashSet<>();
        listed(words[3], ",").forEach(each -> topics.add(uuid(each)));
        Map<Uuid, Set<Integer>> target = new HashMap<>();
        for (String each : listed(words[4], ";")) {
            String[] parts = each.split(":");
            target.put(uuid(parts[0]), new HashSet<>(numbers(parts[1])));
            numbers(parts[1]).forEach(number ->
                inverted.computeIfAbsent(uuid(parts[0]), k -> new HashMap<>()).put(number, id));
        }
        Optional<String> instance =
            words[2].equals("-") ? Optional.empty() : Optional.of(text(words[2]));
        members.put(id, new MemberSubscriptionAndAssignmentImpl(
            Optional.empty(), instance, topics, new Assignment(target)));
    }

    private static Uuid uuid(String hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    private static String hex(Uuid topic) {
        ByteBuffer bytes = ByteBuffer.allocate(16);
        bytes.putLong(topic.getMostSignificantBits()).putLong(topic.getLeastSignificantBits());
        return HexFormat.of().formatHex(bytes.array());
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static List<String> listed(String word, String separator) {
        return word.equals("-") ? List.of() : Arrays.asList(word.split(separator));
    }

    private static List<Integer> numbers(String word) {
        return listed(word, ",").stream().map(Integer::valueOf).toList();
    }

    private void answer() {
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        Map<String, MemberAssignment> found;
        try {
            found = assignor.assign(
                new GroupSpecImpl(
                    members, type, inverted, limited ? Optional.of(assignable) : Optional.empty()),
                describer).members();
        } catch (NoSuchElementException error) {
            OUT.println("failed " + error.getClass().getSimpleName());
            OUT.println("end");
            return;
        }
        Map<String, String> lines = new TreeMap<>();
        for (String id : members.keySet()) {
            Map<String, String> target = new TreeMap<>();
            if (found.containsKey(id)) {
                found.get(id).partitions().forEach((topic, partitions) -> {
                    if (!partitions.isEmpty()) {
                        target.put(hex(topic), new TreeSet<>(partitions).stream()
                            .map(String::valueOf).collect(Collectors.joining(",")));
                    }
                });
            }
            List<String> parts = new ArrayList<>();
            target.forEach((topic, partitions) -> parts.add(topic + ":" + partitions));
            String hexId = HexFormat.of().formatHex(id.getBytes(StandardCharsets.UTF_8));
            lines.put(hexId, parts.isEmpty() ? "-" : String.join(";", parts));
        }
        lines.forEach((id, target) -> OUT.println(id + " " + target));
        OUT.println("end");
    }
}
