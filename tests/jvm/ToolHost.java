import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs Apache Kafka's shell tools one after another in one process.
 *
 * <p>A line of JSON in: {"tool": CLASS, "words": [...], "stdin": TEXT}; a line of JSON out: {"status":
 * NUMBER, "out": TEXT, "err": TEXT}. A tool that exits ends only its own thread. Its shutdown hooks run
 * when it has ended.
 */
public final class ToolHost {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final List<Runnable> HOOKS = new ArrayList<>();
        // The first exit counts: some tools catch the exception of the trap, print it, and exit again.
    private static Integer status;
    private static ByteArrayOutputStream err;
    private static String errBeforeExit;

    /** Thrown instead of the end of the process. It is an Error, so that tools do not catch it. */
    private static final class Ended extends ThreadDeath {
    }

    public static void main(String[] none) throws Exception {
                // The output of this process, which is not redirected.
        LoggerFactory.getLogger(ToolHost.class);
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        BufferedReader asked =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(JSON.readTree(line));
            System.setOut(answers);
            System.setErr(errors);
            ObjectNode answer = JSON.createObjectNode();
            answer.put("status", code);
            answer.put("out", out.toString(StandardCharsets.UTF_8));
            String said = err.toString(StandardCharsets.UTF_8);
            answer.put("err", errBeforeExit == null ? said : errBeforeExit);
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void end(int code) {
        if (status == null) {
            status = code;
            errBeforeExit = err.toString(StandardCharsets.UTF_8);
        }
        throw new Ended();
    }

    private static int run(JsonNode asked) throws Exception {
        List<String> words = new ArrayList<>();
        asked.get("words").forEach(word -> words.add(word.asText()));
        String stdin = asked.path("stdin").asText("");
        System.setIn(new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8)));
        status = null;
        errBeforeExit = null;
        HOOKS.clear();
        try {
            Class.forName(asked.get("tool").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) words.toArray(new String[0]));
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                            // Print the exception of a main method, as Java does.
                failure.getCause().printStackTrace();
                status = status == null ? 1 : status;
            }
        }
        for (Runnable hook : List.copyOf(HOOKS)) {
            hook.run();
        }
        return status == null ? 0 : status;
    }
}
