// Runs Apache Kafka's assignors on cases from standard input. A case is
//   case ASSIGNOR
//   topic NAME RACKS;RACKS;...      one list of racks (a,b) per partition, - for none
//   member ID INSTANCE RACK GENERATION TOPICS OWNED USERDATA      "-" for a missing value
//   end
// The output is one line "ID TOPIC:NUMBER,..." per member and a line "end".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assignors {
    private final Map<String, Node> nodes = new TreeMap<>();
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final Map<String, Subscription> members = new HashMap<>();
    private ConsumerPartitionAssignor assignor;

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Assignors current = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case" -> {
                    current = new Assignors();
                    current.assignor = named(words[1]);
                }
                case "topic" -> current.addTopic(words);
                case "member" -> current.addMember(words);
                default -> current.answer();
            }
        }
    }

    private static ConsumerPartitionAssignor named(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private Node node(String rack) {
        return nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "h", 1, r.equals("-") ? null : r));
    }

    private void addTopic(String[] words) {
        String[] each = words[2].split(";");
        for (int number = 0; number < each.length; number++) {
            Node[] replicas =
                Arrays.stream(each[number].split(",")).map(this::node).toArray(Node[]::new);
            partitions.add(new PartitionInfo(words[1], number, replicas[0], replicas, replicas));
        }
    }

    private void addMember(String[] words) {
        List<TopicPartition> owned = new ArrayList<>();
        for (String each : listed(words[6])) {
            String[] parts = each.split(":");
            owned.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        ByteBuffer userData = present(words[7])
            .map(hex -> ByteBuffer.wrap(HexFormat.of().parseHex(hex))).orElse(null);
        Subscription subscription = new Subscription(
            listed(words[5]), userData, owned, Integer.parseInt(words[4]), present(words[3]));
        subscription.setGroupInstanceId(present(words[2]));
        members.put(words[1], subscription);
    }

    private static Optional<String> present(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    private static List<String> listed(String word) {
        return present(word).map(w -> Arrays.asList(w.split(","))).orElse(List.of());
    }

    private void answer() {
        Set<String> none = Collections.emptySet();
        Cluster cluster = new Cluster("c", nodes.values(), partitions, none, none);
        var given = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        new TreeMap<>(given).forEach((name, assignment) -> System.out.println(
            name + " " + assignment.partitions().stream()
                .map(tp -> tp.topic() + ":" + tp.partition())
                .sorted().collect(Collectors.joining(","))));
        System.out.println("end");
    }
}
