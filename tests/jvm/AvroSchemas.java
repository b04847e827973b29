import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/**
 * Reads lines of two schemas, a writer's and a reader's, with a tab between them. Prints for each
 * line the canonical texts of both, or "!" for an invalid schema, and the incompatibilities.
 */
public class AvroSchemas {
  public static void main(String[] arguments) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] texts = line.split("\t");
      Schema writer = parse(texts[0]);
      Schema reader = parse(texts[1]);
      out.println(shown(writer) + "\t" + shown(reader) + "\t" + compared(reader, writer));
    }
    out.flush();
  }

  private static Schema parse(String text) {
    try {
      return new Schema.Parser().parse(text);
    } catch (RuntimeException error) {
      return null;
    }
  }

  private static String shown(Schema schema) {
    return schema == null ? "!" : schema.toString();
  }

  private static String compared(Schema reader, Schema writer) {
    if (reader == null || writer == null) {
      return "";
    }
    try {
      var result = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult();
      List<String> found = new ArrayList<>();
      for (var each : result.getIncompatibilities()) {
        found.add(each.getType() + " " + each.getLocation() + " " + each.getMessage());
      }
      return String.join(";", found);
    } catch (RuntimeException error) {
      return "!";
    }
  }
}
