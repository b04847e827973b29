// Prints Apache Kafka's definitions of its keys, one per line: kind, name, type, default, and the
// probed numbers that its validator accepts.

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigKeys {
    private static final List<String> PROBES =
        List.of("-2", "-1", "0", "1", "2", "10", "1000", "1048575", "1048576", "2147483647");

    public static void main(String[] arguments) throws ReflectiveOperationException {
        Class<?> broker = Class.forName("kafka.server.KafkaConfig");
        print("broker", (ConfigDef) broker.getMethod("configDef").invoke(null));
                // Keys that are not in the static definition of the broker.
        print("broker", QuotaConfig.brokerQuotaConfigs());
        print("topic", LogConfig.configDefCopy());
    }

    private static void print(String kind, ConfigDef definition) {
        Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>(definition.configKeys());
        for (ConfigDef.ConfigKey key : keys.values()) {
            String value =
                key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "(none)";
            System.out.println(
                String.join("\t", kind, key.name, key.type.name(), "" + value, taken(key)));
        }
    }

    private static String taken(ConfigDef.ConfigKey key) {
        if (key.validator == null) {
            return "all";
        }
        StringBuilder found = new StringBuilder();
        for (String probe : PROBES) {
            try {
                Object value = ConfigDef.parseType(key.name, probe, key.type);
                key.validator.ensureValid(key.name, value);
                found.append(probe).append(' ');
            } catch (ConfigException refused) {
                continue;
            }
        }
        return found.toString().trim();
    }
}
