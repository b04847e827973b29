"""Options of the source and sink: names, defaults and errors with valid values."""

from __future__ import annotations

import pickle

import pytest

from barnabas.client.topic_partition import TopicPartition
from barnabas.serializers import SchemaRegistry
from barnabas.serializers.schema import Schema, SchemaType
from barnabas.spark.errors import OptionError
from barnabas.spark.topics.offsets import from_json, to_json
from barnabas.spark.topics.options import (
    BoundKind,
    ClientOptions,
    SourceOptions,
    parse_sink_options,
    parse_source_options,
)
from barnabas.spark.topics.value_format import ValueErrors, column_type, resolve
from unit.serializers.registry_server import RegistryServer

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def batch(**more: str) -> SourceOptions:
    return parse_source_options(BASE | more, streaming=False)


def stream(**more: str) -> SourceOptions:
    return parse_source_options(BASE | more, streaming=True)


def test_defaults_are_those_of_sparks_connector() -> None:
    assert batch().starting.kind is BoundKind.EARLIEST
    assert batch().ending.kind is BoundKind.LATEST
    assert stream().starting.kind is BoundKind.LATEST
    assert stream().fail_on_data_loss
    assert not stream().include_headers
    assert stream().max_trigger_delay_ms == 900_000


SECRET = "do-not-show-me"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECURED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": f'{JAAS} username="u" password="{SECRET}";',
    "kafka.ssl.truststore.location": "/ca.pem",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.password": SECRET,
    "kafka.ssl.keystore.key": SECRET,
    "kafka.ssl.key.password": SECRET,
    "kafka.ssl.endpoint.identification.algorithm": "",
}


def test_security_options_reach_workers_and_are_not_shown() -> None:
    sink = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **SECURED})
    for options in (batch(**SECURED), stream(**SECURED), sink):
        for shown in (options, pickle.loads(pickle.dumps(options))):
            assert shown.client == {
                "bootstrap.servers": "h:1",
                **{key.removeprefix("kafka."): value for key, value in SECURED.items()},
            }
            for text in (repr(shown), str(shown), f"{shown.client}"):
                assert SECRET not in text
                assert "/ca.pem" in text


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"])
def test_other_clients_names_of_secrets_are_not_shown(name: str) -> None:
    options = ClientOptions({"bootstrap.servers": "h:1", name: SECRET})
    assert SECRET not in repr(options)
    assert name in repr(options)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.sasl.jaas.config": f"{JAAS} username=u password={SECRET}"},
        {"kafka.sasl.jaas.config": f'other required username=u password="{SECRET}";'},
        {"kafka.security.protocol": "PLAINTEXT"},
        {"kafka.sasl.mechanism": "NONE"},
        {"kafka.sasl.password": SECRET},
        {"kafka.ssl.truststore.passwort": SECRET},
        {"sasl.password": SECRET},
    ],
)
def test_errors_of_security_options_show_no_secrets(wrong: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        batch(**{**SECURED, **wrong})
    assert SECRET not in str(caught.value)


def test_keys_of_the_client_are_passed_on_without_their_prefix() -> None:
    options = batch(**{"kafka.fetch.max.bytes": "7", "kafka.group.id": "g"})
    assert options.client == {"bootstrap.servers": "h:1", "fetch.max.bytes": "7"}
    assert options.group_id == "g"


def test_the_group_is_named_after_prefix_and_topics() -> None:
    assert batch().group_id == "spark-barnabas-t"
    assert batch(groupidprefix="mine").group_id == "mine-t"


def test_offsets_are_read_from_json() -> None:
    bound = batch(startingoffsets='{"t": {"0": 5, "1": -2}}').starting
    assert bound.numbers == {TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}


def test_a_single_timestamp_overrides_timestamps_and_offsets() -> None:
    bound = batch(
        startingtimestamp="9", startingoffsetsbytimestamp='{"t": {"0": 5}}', startingoffsets="x"
    ).starting
    assert (bound.kind, bound.timestamp) == (BoundKind.TIMESTAMP, 9)


def test_offsets_are_read_back_from_a_checkpoint() -> None:
    offsets = {TopicPartition("t", 10): 1, TopicPartition("t", 2): 3}
    assert from_json(to_json(offsets)) == offsets
    assert to_json(offsets) == {"t": {"2": 3, "10": 1}}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"startingofsets": "latest"}, "did you mean startingOffsets"),
        ({"startingoffsets": "newest"}, "expected 'earliest', 'latest'"),
        ({"startingoffsets": "latest"}, "cannot be latest"),
        ({"startingoffsets": '{"t": {"0": -1}}'}, "cannot be latest"),
        ({"startingoffsets": "{t}"}, "not JSON"),
        ({"startingoffsets": '{"t": 3}'}, "an object is expected"),
        ({"startingoffsets": '{"t": {"zero": 3}}'}, "'zero'"),
        ({"startingoffsets": '{"t": {"0": -3}}'}, "too small"),
        ({"endingoffsets": "earliest"}, "cannot be earliest"),
        ({"assign": '{"t": [0]}'}, "subscribe and assign"),
        ({"minpartitions": "0"}, "at least 1"),
        ({"minpartitions": "many"}, "whole number"),
        ({"failondataloss": "maybe"}, "neither true nor false"),
        ({"maxoffsetspertrigger": "many"}, "maxOffsetsPerTrigger='many'"),
        ({"subscribepattern": r"\p{IsGreek}", "subscribe": ""}, "subscribe and subscribePattern"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"startingoffsetsbytimestampstrategy": "x"}, "'error' or 'latest'"),
        ({"subscribe": " "}, "empty"),
        ({"bootstrap.servers": "h"}, "did you mean kafka.bootstrap.servers"),
        ({"linger.ms": "5"}, "start with 'kafka.'"),
        ({"schema.registry.url": "u"}, r"did you mean registry\?"),
        ({"schemaRegistryUrl": "u"}, r"did you mean registry\?"),
        ({"registryUrl": "u"}, r"did you mean registry\?"),
        ({"schema.registry.basic.auth.user.info": "a:b"}, "did you mean registryUser"),
        ({"schema.registry.ssl.ca.location": "f"}, "did you mean registryCaFile"),
    ],
)
def test_a_wrong_option_of_a_read_is_named(more: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        batch(**more)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"endingoffsets": "latest"}, "a stream has no end"),
        ({"maxtriggerdelay": "soon"}, "duration"),
        ({"minoffsetspertrigger": "9", "maxoffsetspertrigger": "5"}, "more than"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(more: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        stream(**more)


def test_a_read_requires_topics_and_servers() -> None:
    with pytest.raises(OptionError, match="got none"):
        parse_source_options({"kafka.bootstrap.servers": "h:1"}, streaming=False)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_source_options({"subscribe": "t"}, streaming=False)
    with pytest.raises(OptionError, match="not a valid pattern"):
        parse_source_options(
            {"kafka.bootstrap.servers": "h:1", "subscribepattern": "("}, streaming=False
        )


@pytest.mark.parametrize("text", ['{"t": []}', "{}"])
def test_an_assignment_without_partitions_reads_nothing_with_a_warning(text: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "assign": text}
    options = parse_source_options(given, streaming=True)
    assert options.selection.partitions == ()
    assert options.warnings == (f"Option assign={text} names no partition: nothing is read",)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5", 5),
        ("30s", 30_000),
        ("15m", 900_000),
        (" 15MIN ", 900_000),
        ("100us", 0),
        ("2500us", 2),
        ("7ms", 7),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
    ],
)
def test_durations_are_those_of_spark(text: str, ms: int) -> None:
    assert stream(maxtriggerdelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize("text", ["soon", "1 hour", "5 s", "-5s", "1w", "1.5s", f"{1 << 63}d"])
def test_what_spark_does_not_take_for_a_duration_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not a duration"):
        stream(maxtriggerdelay=text)


def test_a_batch_read_ignores_options_of_streams_with_a_warning() -> None:
    (warning,) = batch(maxoffsetspertrigger="5").warnings
    assert warning == "Option maxOffsetsPerTrigger has no effect: it is for spark.readStream"
    assert stream(maxoffsetspertrigger="5").warnings == ()


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("more", [{"startingoffsets": "latest"}, {"endingoffsets": "latest"}, {}])
def test_a_wrong_value_is_named_before_options_of_the_other_kind_of_read(
    more: dict[str, str], streaming: bool
) -> None:
    given = BASE | more | {"failondataloss": "maybe", "maxoffsetspertrigger": "5"}
    with pytest.raises(OptionError, match="failOnDataLoss='maybe'"):
        parse_source_options(given, streaming=streaming)


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", True),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", True),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", True),
        ("com.example.Mine", False),
    ],
)
def test_partitioners_of_java_are_kafkas_own_or_refused(name: str, is_known: bool) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.partitioner.class": name}
    if is_known:
        assert parse_sink_options(given).client["partitioner.class"] == name
        return
    with pytest.raises(OptionError, match=r"classes of Java cannot be used"):
        parse_sink_options(given)


def test_a_sink_accepts_a_topic_and_the_options_that_spark_adds() -> None:
    options = parse_sink_options(
        {"kafka.bootstrap.servers": "h:1", "topic": "out", "checkpointlocation": "/x"}
    )
    assert options.topic == "out"
    with pytest.raises(OptionError, match="topic is empty"):
        parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": ""})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "t"}, "option topic is for writing"),
        ({"kafka.transactional.id": "a"}, "kafka.transactional.id cannot be set"),
        ({"kafka.fetch.min.byte": "1"}, "unknown configuration key fetch.min.byte"),
        ({"kafka.fetch.min.bytes": "many"}, "fetch.min.bytes=many is not a whole number"),
        ({"kafkaconsumer.polltimeoutms": "0"}, "kafkaConsumer.pollTimeoutMs='0'"),
    ],
)
def test_a_wrong_option_of_a_read_is_refused_early(options: dict[str, str], words: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | options
    with pytest.raises(OptionError, match=words):
        parse_source_options(given, streaming=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t"}, "option subscribe is for reading"),
        ({"kafka.transactional.id": "a"}, "kafka.transactional.id cannot be set"),
        ({"kafka.acks": "7"}, "acks=7 is not one of"),
    ],
)
def test_a_wrong_option_of_a_write_is_refused_early(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"} | options)


def test_options_without_effect_log_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "fetchOffset.numRetries": "3"}
    parse_source_options(given, streaming=True).log_warnings()
    assert "fetchOffset.numRetries has no effect" in caplog.text


def test_the_poll_timeout_limits_how_long_a_task_waits() -> None:
    given = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "kafkaConsumer.pollTimeoutMs": "1234",
    }
    assert parse_source_options(given, streaming=False).poll_timeout_ms == 1234


AVRO = {"valueFormat": "avro", "registry": "http://h:8081"}
JSON = {"valueFormat": "json", "valueSchema": "a INT"}
PROTOBUF = {"valueFormat": "protobuf", "registry": "http://h:8081"}


def test_values_are_bytes_unless_a_format_is_given() -> None:
    assert batch().value_format is None
    assert batch(valueFormat="binary").value_format is None
    found = stream(**AVRO, registryUser="ana", registryPassword=SECRET).value_format
    assert found is not None
    assert (found.topic, found.schema, found.errors) == ("t", "", ValueErrors.FAIL)
    assert SECRET not in repr(found)
    given = batch(**AVRO, valueSchema='"int"', valueErrors="null").value_format
    assert given is not None
    assert (given.topic, given.schema, given.errors) == ("", '"int"', ValueErrors.NULL)


def test_dead_letters_are_dropped_unless_their_rows_are_kept() -> None:
    found = stream(**JSON, deadLetterTopic="dead").value_format
    assert found is not None
    assert (found.dead_letter_topic, found.errors) == ("dead", ValueErrors.DROP)
    found = stream(**JSON, deadLetterTopic="dead", valueErrors="null").value_format
    assert found is not None
    assert found.errors is ValueErrors.NULL


@pytest.mark.parametrize("text", ["a INT, b STRING", "struct<a INT, b STRING>"])
def test_the_columns_of_json_are_spark_ddl(text: str) -> None:
    found = stream(valueFormat="json", valueSchema=text).value_format
    assert found is not None
    assert column_type(found) == "struct<a INT, b STRING>"


@pytest.mark.parametrize(
    ("message", "columns"), [("", "struct<a:int>"), ("Other", "struct<m:map<int,string>>")]
)
def test_the_columns_of_protobuf_are_those_of_the_message(message: str, columns: str) -> None:
    text = (
        'syntax = "proto3"; message M { uint32 a = 1; } message Other { map<int32, string> m = 1; }'
    )
    found = stream(**PROTOBUF, valueSchema=text, valueMessage=message).value_format
    assert found is not None
    assert column_type(found) == columns


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message M { optional M m = 1; }", "valueFormat=protobuf: field m: .* contains itself"),
        ("message M {", "valueFormat=protobuf: .*line 1"),
        ('import "a.proto";', "imports a.proto"),
        ("message N {}", "has no message M; it has N"),
    ],
)
def test_a_wrong_schema_of_protobuf_is_explained(text: str, words: str) -> None:
    found = batch(**PROTOBUF, valueSchema=text, valueMessage="M").value_format
    assert found is not None
    with pytest.raises(OptionError, match=words):
        column_type(found)


def test_the_latest_schema_of_the_subject_must_be_protobuf() -> None:
    with RegistryServer() as server:
        registry = SchemaRegistry(server.url)
        options = batch(**PROTOBUF | {"registry": server.url})
        assert options.value_format is not None
        registry.register("t-value", Schema('"int"'))
        with pytest.raises(OptionError, match=r"protobuf, subject t-value: .* AVRO, not PROTOBUF"):
            resolve(options.value_format, options.client)
        text = 'syntax = "proto3"; message M { bytes b = 1; }'
        registry.register("t-value", Schema(text, SchemaType.PROTOBUF))
        assert column_type(resolve(options.value_format, options.client)) == "struct<b:binary>"


def test_a_batch_infers_the_columns_of_one_topic() -> None:
    found = batch(valueFormat="json", valueSchema="INFER").value_format
    assert found is not None
    assert found.topic == "t"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"valueFormat": "avro"}, "needs registry"),
        ({"valueFormat": "xml"}, "expected 'binary', 'avro', 'json', 'protobuf'"),
        ({"valueFormat": "json"}, "valueFormat=json needs valueSchema.*topics schema t"),
        (JSON | {"registry": "http://h"}, "registry has no meaning without valueFormat=avro"),
        ({"valueErrors": "null"}, "valueErrors has no meaning without"),
        ({"deadLetterTopic": "dead"}, "deadLetterTopic has no meaning without"),
        (AVRO | {"valueErrors": "skip"}, "expected 'fail', 'null' or 'drop'"),
        (AVRO | {"valueMessage": "M"}, "no meaning without valueFormat=protobuf"),
        (PROTOBUF | {"emit.default.values": "1"}, "neither true nor false"),
        (AVRO | {"subscribe": "t,u"}, "several topics needs valueSchema"),
        (JSON | {"subscribe": "t,u", "valueSchema": "infer"}, "several topics needs valueSchema"),
        (JSON | {"deadLetterTopic": " "}, "deadLetterTopic is empty"),
        (JSON | {"deadLetterTopic": "t"}, "deadLetterTopic='t' is also read"),
        (JSON | {"deadLetterTopic": "dead", "valueErrors": "fail"}, "no meaning with valueErrors"),
    ],
)
def test_a_wrong_option_of_values_is_named(more: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        batch(**more)


def test_a_stream_does_not_infer_its_columns() -> None:
    with pytest.raises(OptionError, match=r"infer is for spark.read: .* topics schema t"):
        stream(valueFormat="json", valueSchema="infer")
