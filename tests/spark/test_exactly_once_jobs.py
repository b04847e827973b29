"""Exactly once from topic to topic: jobs are killed, and processes outlive their job."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess
from spark.copies import each_row_once, write_records
from spark.killed_job import FOREVER, TIMEOUT_S, TO_THE_END, Job
from spark.standalone_cluster import standalone_cluster
from spark.stopping_sink import STEPS, StoppingSink, StopPoint
from waiting import eventually

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("job_to_topic.py")
# 10 batches of the job.
JOB_RECORDS = 50_000
# Executors in processes of their own.
CLUSTER = "local-cluster[2,1,600]"


@pytest.fixture(scope="module")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Our broker, or Apache Kafka with BARNABAS_CONFORMANCE_BOOTSTRAP=kafka."""
    directory = tmp_path_factory.mktemp("broker")
    if os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP") == "kafka":
        request.getfixturevalue("kafka_jars")
        process: BrokerProcess | KafkaProcess = KafkaProcess(directory)
    else:
        process = BrokerProcess(directory)
    try:
        yield process.start().bootstrap
    finally:
        process.close()


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap, isolation_level="read_committed") as made:
        yield made


def stopped_job(
    bootstrap: str, topic: str, directory: Path, step: str, options: dict[str, object] | None = None
) -> tuple[Job, StopPoint]:
    """Start a job, and wait until one of its processes has stopped at a step."""
    point = StopPoint(str(directory))
    point.request(step)
    words = json.dumps({"sink": StoppingSink.name(), **(options or {})})
    job = Job(JOB, bootstrap, topic, directory, TO_THE_END, words)
    eventually(lambda: point.stopped() != 0, job.log, TIMEOUT_S)
    return job, point


def parent_of(process: int) -> int:
    """Return the process id of the parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def ended(process: int) -> bool:
    """Return whether a process does not exist or is only waited for."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.slow
@pytest.mark.nightly
def test_each_row_is_seen_once_after_the_job_is_killed_at_random(
    client: Client, copied: Callable[[], Counter[bytes]], bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Driver and tasks die at the same moment, and no transaction is aborted."""
    client.create_topic(f"{topic}-out", 2, 1)
    values = [b"%d" % i for i in range(JOB_RECORDS)]
    with client.producer() as producer:
        producer.send_batch(topic, [(None, value, [], None) for value in values])
    seed = time.time_ns()
    chance = random.Random(seed)
    print("seed", seed)
    for batches in (0, 1, 4):
        with Job(JOB, bootstrap, topic, tmp_path, FOREVER) as job:
            job.run_on(batches, chance.uniform(0, 0.8 if batches else 4))
    with Job(JOB, bootstrap, topic, tmp_path, TO_THE_END) as job:
        job.finish()
    assert copied() == Counter(values)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("step", STEPS)
def test_a_batch_is_resumed_after_its_driver_is_killed(
    step: str,
    client: Client,
    copied: Callable[[], Counter[bytes]],
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    write_records(client, topic)
    job, _ = stopped_job(bootstrap, topic, tmp_path, step)
    job.kill()
    with Job(JOB, bootstrap, topic, tmp_path, TO_THE_END) as again:
        again.finish()
    assert copied() == each_row_once()


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_outlives_its_job_changes_nothing(
    step: str,
    client: Client,
    copied: Callable[[], Counter[bytes]],
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    """The stopped process continues after another run of the job has finished the batch."""
    write_records(client, topic)
    job, point = stopped_job(bootstrap, topic, tmp_path, step)
    # Spark's daemon of Python processes would take the process with it.
    os.kill(parent_of(point.stopped()), signal.SIGKILL)
    job.kill()
    with Job(JOB, bootstrap, topic, tmp_path, TO_THE_END) as again:
        again.finish()
    assert not ended(point.stopped())
    point.release()
    eventually(lambda: ended(point.stopped()), "the process goes on")
    assert copied() == each_row_once()


@pytest.mark.slow
@pytest.mark.nightly
def test_a_task_that_outlives_its_executor_changes_nothing(
    client: Client,
    copied: Callable[[], Counter[bytes]],
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    """Another executor runs the task again; the first attempt goes on after that."""
    write_records(client, topic)
    job, point = stopped_job(bootstrap, topic, tmp_path, "after flush", {"master": CLUSTER})
    with job:
        daemon = parent_of(point.stopped())
        executor = parent_of(daemon)
        for process in (daemon, executor):
            os.kill(process, signal.SIGKILL)
        job.finish()
        assert not ended(point.stopped())
        point.release()
        eventually(lambda: ended(point.stopped()), "the task goes on")
    assert copied() == each_row_once()


@pytest.mark.slow
@pytest.mark.nightly
def test_a_speculative_attempt_of_a_task_replaces_the_slow_one(
    client: Client,
    copied: Callable[[], Counter[bytes]],
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    write_records(client, topic)
    with standalone_cluster(tmp_path) as master:
        options = {"master": master, "settings": {"spark.speculation": "true"}}
        job, point = stopped_job(bootstrap, topic, tmp_path, "during produce", options)
        with job:
            job.finish()
            # The speculative attempt finished the batch: the test did not let the first go on.
            point.release()
    assert copied() == each_row_once()
