// Confluent's Java client of schema registries: each call of it that a tool or a serializer makes.

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Config;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;

public class RegistryClient {
    private static final String AIRPORT =
        "{\"type\":\"record\",\"name\":\"Airport\",\"fields\":[{\"name\":\"code\",\"type\":\"string\"}]}";
    private static final String BROKEN = AIRPORT.replace(
        "]}", ",{\"name\":\"city\",\"type\":\"string\"}]}");
    private static final String FLIGHT =
        "{\"type\":\"record\",\"name\":\"Flight\",\"fields\":[{\"name\":\"to\",\"type\":\"Airport\"}]}";

    private interface Call {
        Object result() throws Exception;
    }

    // Prints NAME=RESULT, or NAME=STATUS/CODE if the registry refuses the request.
    private static void show(String name, Call call) throws Exception {
        try {
            System.out.println(name + "=" + call.result());
        } catch (RestClientException error) {
            System.out.println(name + "=" + error.getStatus() + "/" + error.getErrorCode());
        }
    }

    // Arguments: the registry's URL, a prefix of subjects, and a record of Airport in hexadecimal digits.
    public static void main(String[] arguments) throws Exception {
        String subject = arguments[1] + "-value";
        String other = arguments[1] + "-flight";
        var client = new CachedSchemaRegistryClient(arguments[0], 100);
        var airport = new AvroSchema(AIRPORT);
        int id = client.register(subject, airport);
        show("again", () -> client.register(subject, new AvroSchema(AIRPORT)) == id);
        show("version", () -> client.getVersion(subject, airport));
        show("latest", () -> client.getLatestSchemaMetadata(subject).getSchema());
        show("by id", () -> new CachedSchemaRegistryClient(arguments[0], 9).getSchemaById(id));
        show("versions", () -> client.getAllVersions(subject));
        show("subjects", () -> client.getAllSubjectsByPrefix(arguments[1]));
        show("level", () -> client.updateConfig(subject, new Config("FULL")).getCompatibilityLevel());
        show("compatible", () -> client.testCompatibility(subject, new AvroSchema(BROKEN)));
        show("reasons", () -> client.testCompatibilityVerbose(subject, new AvroSchema(BROKEN)).size() > 0);
        show("conflict", () -> client.register(subject, new AvroSchema(BROKEN)));
        var references = List.of(new SchemaReference("Airport", subject, 1));
        var flight = new AvroSchema(FLIGHT, references, Map.of("Airport", AIRPORT), null);
        int flightId = client.register(other, flight);
        show("reference", () -> new CachedSchemaRegistryClient(arguments[0], 9).getSchemaById(flightId)
            .references().get(0).getSubject().equals(subject));
        show("protected", () -> client.deleteSchemaVersion(subject, "1", false));
        show("mode", () -> client.setMode("READONLY", subject));
        show("read only", () -> client.deleteSubject(subject, false));
        client.deleteMode(subject);
        show("deleted", () -> client.deleteSubject(other, false));
        show("missing", () -> client.getSchemaMetadata(other, 1).getId());
        show("for ever", () -> client.deleteSubject(other, true));
        show("decoded", () -> decode(client, HexFormat.of().parseHex(arguments[2])).get("code"));
        System.out.println("encoded=" + HexFormat.of().formatHex(encode(airport, id)));
    }

    private static byte[] encode(AvroSchema schema, int id) throws Exception {
        var bytes = new ByteArrayOutputStream();
        bytes.write(ByteBuffer.allocate(5).put((byte) 0).putInt(id).array());
        var record = new GenericData.Record(schema.rawSchema());
        record.put("code", "LGA");
        var encoder = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<GenericRecord>(schema.rawSchema()).write(record, encoder);
        encoder.flush();
        return bytes.toByteArray();
    }

    private static GenericRecord decode(CachedSchemaRegistryClient client, byte[] data) throws Exception {
        var schema = (AvroSchema) client.getSchemaById(ByteBuffer.wrap(data, 1, 4).getInt());
        var decoder = DecoderFactory.get().binaryDecoder(data, 5, data.length - 5, null);
        return new GenericDatumReader<GenericRecord>(schema.rawSchema()).read(null, decoder);
    }
}
