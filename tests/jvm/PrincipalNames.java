// Prints Kafka's names of principals, one for each line of a file.
// "name HEX": the text of a distinguished name in DER. "rules RULES SUBJECT" (separated by tabs):
// the name by these rules, "-" if none matches, "!" if the rules are malformed.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class PrincipalNames {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t", -1);
            String name = parts[0].equals("name") ? text(parts[1]) : mapped(parts[1], parts[2]);
            System.out.println(name.replace("\n", "\\n"));
        }
    }

    private static String text(String hex) {
        return new X500Principal(HexFormat.of().parseHex(hex)).getName();
    }

    private static String mapped(String rules, String subject) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (IllegalArgumentException malformed) {
            return "!";
        }
        try {
            return mapper.getName(subject);
        } catch (java.io.IOException none) {
            return "-";
        }
    }
}
