"""Options of jobs, read from their source text and compared without running them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.spark.checks import spark
from barnabas.spark.job_checks import JobError, JobUse, Kind, Verdict, findings, uses_in
from barnabas.spark.option_table import OPTIONS, Comparison, Purpose
from barnabas.spark.topics.options import parse_sink_options, parse_source_options

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
LOAD = '.option("kafka.bootstrap.servers", "h:9092").load()'


def only(text: str) -> JobUse:
    (use,) = uses_in(text)
    return use


def verdicts(text: str) -> dict[str, str]:
    return {line.name: line.verdict.value for line in findings(only(text))}


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        (
            f'spark.read.format("kafka").option("subscribe", "t"){LOAD}',
            Kind.READ,
            {"subscribe": "t"},
        ),
        (
            f'spark.readStream.format("barnabas").options(subscribe="t", minPartitions=3){LOAD}',
            Kind.READ_STREAM,
            {"subscribe": "t", "minPartitions": "3"},
        ),
        (
            (
                f'T = "t"\nO = {{"subscribe": T, **MORE}}\nMORE = {{"includeHeaders": True}}\n'
                f'spark.read.format("kafka").options(**O){LOAD}'
            ),
            Kind.READ,
            {"subscribe": "t", "includeHeaders": "true"},
        ),
        (
            (
                'def go(spark):\n  r = spark.read.format("kafka")\n'
                '  r = r.option("subscribe", "t")\n'
                f"  return r{LOAD}"
            ),
            Kind.READ,
            {"subscribe": "t"},
        ),
        (
            f'spark.read.format("kafka").option("subscribe", name){LOAD}',
            Kind.READ,
            {"subscribe": None},
        ),
    ],
    ids=["chain", "named options", "constants", "variable", "unknown value"],
)
def test_options_are_found_in_chains(text: str, kind: Kind, options: dict[str, str | None]) -> None:
    use = only(text)
    assert use.kind is kind
    assert use.options == {**options, **SERVERS}
    assert not use.has_unknown_options


def test_other_formats_are_not_uses_of_topics() -> None:
    assert uses_in('spark.read.format("parquet").load("x"); spark.read.text("y"); a.b().c()') == []


def test_a_write_in_two_statements_is_one_use() -> None:
    text = 'w = df.write.format("kafka").option("topic", "t")\nw.mode("append").save()'
    use = only(text)
    assert (use.kind, use.options, use.mode) == (Kind.WRITE, {"topic": "t"}, "append")


def test_values_that_two_statements_set_are_unknown() -> None:
    text = f'T = "a"\nT = "b"\nspark.read.format("kafka").option("subscribe", T){LOAD}'
    assert only(text).options["subscribe"] is None


def test_each_option_has_a_verdict() -> None:
    text = (
        'spark.readStream.format("kafka").option("subscribePattern", "a.*")'
        '.option("failOnDataLoss", "maybe").option("startingOffsets", given).option("topik", 1)'
        f'.option("maxTriggerDelay", "15min"){LOAD}'
    )
    assert verdicts(text) == {
        "subscribePattern": "differs",
        "failOnDataLoss": "refused",
        "startingOffsets": "unchecked",
        "topik": "refused",
        "maxTriggerDelay": "same",
        "kafka.bootstrap.servers": "same",
    }


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('spark.read.format("kafka").option("subscribe", "t").load()', "options"),
        ('spark.read.format("kafka").options(**given).load()', None),
        (f'spark.read.format(name).option("x", "t"){LOAD}', None),
        (
            f'spark.readStream.format("kafka").option("subscribePattern", r"\\R"){LOAD}',
            "subscribePattern",
        ),
        ('df.write.format("kafka").options(**given).save()', "mode"),
        ('df.write.format("kafka").options(**given).save(mode="append")', None),
        ('df.write.format("kafka").options(**given).mode("overwrite").save()', "mode"),
        (
            'df.writeStream.format("kafka").options(**g).trigger(realTime="5 seconds").start()',
            "trigger(realTime=...)",
        ),
        (
            'df.writeStream.format("kafka").options(**g, checkpointLocation="/c").start()',
            None,
        ),
    ],
)
def test_what_fails_here_is_refused(text: str, refused: str | None) -> None:
    found = [name for name, verdict in verdicts(text).items() if verdict == "refused"]
    assert found == ([] if refused is None else [refused])


def test_text_that_is_not_python_is_an_error() -> None:
    with pytest.raises(JobError, match="this is not Python"):
        uses_in("SELECT 1")


# The beginnings of options that have no meaning without a format of values.
_OF_VALUES = ("value", "registry", "deadLetter", "emit")


def test_the_parsers_agree_with_the_table_of_options() -> None:
    """Each option is refused or taken as the table says."""
    values = {
        "kafka.bootstrap.servers": "h:1", "subscribe": "t", "subscribepattern": "t",
        "assign": '{"t": [0]}', "startingoffsets": '{"t": {"0": 1}}',
        "endingoffsets": '{"t": {"0": 1}}', "startingoffsetsbytimestamp": '{"t": {"0": 1}}',
        "endingoffsetsbytimestamp": '{"t": {"0": 1}}',
        "startingoffsetsbytimestampstrategy": "latest", "failondataloss": "true",
        "includeheaders": "true", "mirroroffsets": "true", "exactlyonce": "true",
        "kafka.partitioner.class": "", "kafka.*": None, "valueformat": "binary",
    }  # fmt: skip
    for option in OPTIONS:
        value = values.get(option.name.lower(), "1")
        if value is None or option.name.startswith(_OF_VALUES):
            continue
        kind = Kind.WRITE if option.purpose is Purpose.WRITE else Kind.READ
        use = JobUse(kind, 1, {**SERVERS, option.name: value}, mode="append", format="kafka")
        if kind is Kind.READ and option.name not in ("subscribe", "subscribePattern", "assign"):
            use.options["subscribe"] = "t"
        found = {line.name: line.verdict.value for line in findings(use)}
        assert found[option.name] == option.comparison.value, option


def test_every_option_of_the_parsers_is_in_the_table_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    assert {option.comparison for option in OPTIONS} == set(Comparison)
    assert {each.value for each in Comparison} < {each.value for each in Verdict}
    parse_source_options(SERVERS | {"subscribe": "t"}, streaming=False)
    parse_sink_options(SERVERS)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(spark, ["check", *map(str, words)])


def test_the_command_lists_each_option_and_fails_if_one_is_refused(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(f'spark.read.format("kafka").option("subscribe", "t"){LOAD}\n')
    good = run(job)
    assert good.exit_code == 0, good.output
    assert f"{job}:1\tread\tdiffers\tsubscribe\t" in good.stdout
    job.write_text(f'spark.read.format("kafka").option("subscribe", ""){LOAD}\n')
    bad = run(job)
    assert (bad.exit_code, bad.stderr) == (1, "1 option refused\n")
    assert "refused\tsubscribe\tsubscribe is empty" in bad.stdout
    (use,) = json.loads(run(job, "--json").stdout)
    assert (use["line"], use["kind"]) == (1, "read")
    assert use["findings"][0] == {
        "option": "subscribe",
        "verdict": "refused",
        "sentence": "subscribe is empty",
    }


def test_the_command_reads_options_from_json(tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    file.write_text(json.dumps({**SERVERS, "subscribe": "t", "maxOffsetsPerTrigger": 5}))
    assert "\treadStream\tsame\tmaxOffsetsPerTrigger\t" in run(file).stdout
    assert "\tread\tsame\tmaxOffsetsPerTrigger\t" in run(file, "--kind", "read").stdout
    file.write_text(json.dumps({**SERVERS, "topic": "t", "failOnDataLoss": True}))
    assert "option failOnDataLoss is for reading" in run(file).stdout


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("job.py", "1 +", "this is not Python"),
        ("job.py", "pass", 'there is no .format("kafka")'),
        ("options.json", "[]", "expected an object"),
        ("options.json", "{", "this is not JSON"),
    ],
)
def test_a_file_without_options_is_an_error(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    found = run(file)
    assert found.exit_code == 1
    assert words in found.stderr
