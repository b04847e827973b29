"""Sources and stateful operators are taken from plans of Spark Connect."""

from __future__ import annotations

from google.protobuf import text_format
from pyspark.sql.connect.proto import Plan

from barnabas.spark.pipelines.definition import (
    FlowDefinition,
    StreamSource,
    define_flow,
    inline_views,
    short_key,
)

TOPIC = """
read {
  data_source {
    format: "barnabas"
    options { key: "subscribe" value: "t" }
    options { key: "startingOffsets" value: "earliest" }
    options { key: "kafka.bootstrap.servers" value: "b:1" }
    options { key: "kafka.sasl.jaas.config" value: "a secret" }
    options { key: "storage.aws_secret_access_key" value: "a secret" }
  }
  is_streaming: true
}
"""
TABLE = 'read { named_table { unparsed_identifier: "records" } is_streaming: true }'
STATIC = 'read { named_table { unparsed_identifier: "airlines" } }'


def windows(relation: str, length: str = "1 minute", line: int = 1) -> str:
    """Counts of windows, as the functions of Python make them."""
    origin = f'common {{ origin {{ python_origin {{ call_site: "p.py:{line}" }} }} }}'
    return f"""
aggregate {{
  input {{ common {{ plan_id: {line} }} with_watermark {{
    input {{ {relation} }} event_time: "timestamp" delay_threshold: "1 minute"
  }} }}
  group_type: GROUP_TYPE_GROUPBY
  grouping_expressions {{
    unresolved_function {{
      function_name: "window"
      arguments {{ unresolved_attribute {{ unparsed_identifier: "timestamp" }} {origin} }}
      arguments {{ literal {{ string: "{length}" }} }}
    }}
  }}
}}
"""


def defined(relation: str, sink: StreamSource | None = None) -> FlowDefinition:
    plan = text_format.Parse(f"root {{ {relation} }}", Plan())
    return define_flow("t", "f", plan, sink)


def test_a_source_has_the_options_that_hold_no_secrets() -> None:
    (source,) = defined(f"filter {{ input {{ {TOPIC} }} }}").sources
    assert source.format == "barnabas"
    assert source.options == {
        "subscribe": "t",
        "startingoffsets": "earliest",
        "kafka.bootstrap.servers": "b:1",
    }


def test_sources_are_in_the_order_of_the_plan() -> None:
    flow = defined(f"set_op {{ left_input {{ {TABLE} }} right_input {{ {TOPIC} }} }}")
    assert [source.format for source in flow.sources] == ["table", "barnabas"]


def test_a_flow_that_reads_no_stream_has_no_checkpoint() -> None:
    flow = defined(windows(STATIC))
    assert not flow.is_streaming
    assert flow.operators == ()


def test_an_aggregation_of_a_stream_keeps_state() -> None:
    (operator,) = defined(windows(TOPIC)).operators
    assert operator.kind == "aggregation"


def test_lines_of_code_and_numbers_of_plans_do_not_change_an_operator() -> None:
    assert defined(windows(TOPIC, line=1)).operators == defined(windows(TOPIC, line=9)).operators


def test_another_window_changes_an_operator() -> None:
    assert defined(windows(TOPIC, "1 minute")).operators != defined(windows(TOPIC, "5 m")).operators


def test_what_an_operator_reads_does_not_change_it() -> None:
    filtered = f"filter {{ input {{ {TOPIC} }} condition {{ literal {{ boolean: true }} }} }}"
    assert defined(windows(filtered)).operators == defined(windows(TOPIC)).operators


def test_only_joins_of_two_streams_keep_state() -> None:
    with_table = defined(f"join {{ left {{ {TOPIC} }} right {{ {STATIC} }} }}")
    of_streams = defined(f"join {{ left {{ {TOPIC} }} right {{ {TABLE} }} }}")
    assert with_table.operators == ()
    assert [each.kind for each in of_streams.operators] == ["join of streams"]


def test_a_deduplication_and_an_aggregation_are_two_operators() -> None:
    deduplicated = f'deduplicate {{ input {{ {TOPIC} }} column_names: "key" }}'
    kinds = [each.kind for each in defined(windows(deduplicated)).operators]
    assert kinds == ["aggregation", "deduplication"]


def test_a_flow_has_the_sources_and_the_state_of_the_views_that_it_reads() -> None:
    views = {
        "records": defined(
            windows('read { named_table { unparsed_identifier: "raw" } is_streaming: true }')
        ),
        "raw": defined(TOPIC),
    }
    flow = inline_views(defined(TABLE), views, None)
    assert [source.format for source in flow.sources] == ["barnabas"]
    assert [operator.kind for operator in flow.operators] == ["aggregation"]
    assert flow.is_complete


def test_a_flow_that_may_read_a_view_in_sql_is_not_complete() -> None:
    assert not inline_views(defined(TABLE), {}, known={"other"}).is_complete
    assert inline_views(defined(TABLE), {}, known={"records"}).is_complete
    assert inline_views(defined(TABLE), {}, None).is_complete


def test_flows_are_named_after_their_table_or_sink() -> None:
    assert short_key("spark_catalog.default.records/records") == "records"
    assert short_key("out/to_topic") == "out/to_topic"
    assert short_key("spark_catalog.sales.records/backfill") == "records/backfill"
