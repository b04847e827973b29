"""A call of librdkafka that never returns ends its process, and the load replaces the process."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from pathlib import Path

from chaos.transactional.clients import REPLACE_ME
from chaos.transactional.journal import JournalReader
from chaos.transactional.watchdog import HungCallError, Watchdog
from chaos.transactional.worker import Task
from chaos.transactional_load import TransactionalLoad, TransactionalOptions, Worker

TESTS = Path(__file__).parents[1]
# A limit for what hangs in spite of the watchdog.
PATIENCE_S = 60.0
LIMIT_S = 0.2
# A process whose producer never returns from a call; the arguments are the journal and the limit.
HANGING = """
import sys, threading
from pathlib import Path
from chaos.transactional.clients import LibrdkafkaProducer
from chaos.transactional.journal import Journal

class HangingProducer:
    def send_offsets_to_transaction(self, offsets, group, timeout):
        threading.Event().wait()

journal = Journal(Path(sys.argv[1]), 1, "id")
producer = LibrdkafkaProducer("127.0.0.1:1", "id", journal.errs, hung_s=float(sys.argv[2]))
producer._producer = HangingProducer()
producer.send_offsets({("t", 0): 1}, None)
"""


def test_only_the_call_that_never_returns_is_reported() -> None:
    reported: queue.Queue[HungCallError] = queue.Queue()
    watchdog = Watchdog(LIMIT_S, reported.put)
    released = threading.Event()

    def call() -> None:
        with watchdog.watch("begin_transaction"):
            pass
        with watchdog.watch("commit_transaction"):
            released.wait()

    caller = threading.Thread(target=call)
    caller.start()
    assert str(reported.get(timeout=PATIENCE_S)) == "commit_transaction did not return within 0.2 s"
    assert caller.is_alive()
    released.set()
    caller.join()
    # The limit of the first call was over before.
    assert reported.empty()


def test_a_process_with_a_hung_call_ends_and_is_replaced_and_counted(tmp_path: Path) -> None:
    journal = tmp_path / "journal.txt"
    words = [sys.executable, "-c", HANGING, str(journal), str(LIMIT_S)]
    process = subprocess.Popen(words, cwd=TESTS)
    assert process.wait(PATIENCE_S) == REPLACE_ME
    load = TransactionalLoad("127.0.0.1:1", tmp_path, 1, TransactionalOptions())
    task = Task(
        "process", "librdkafka", "127.0.0.1:1", 1, "id", str(journal), "input", "output", 1, 1
    )
    load._workers = [Worker(task, process, JournalReader(journal, load.history))]
    load._check_processes()
    assert load.figures().endswith("1 replaced after an error, 1 ended in a hung call")
    error = "id: HungCallError send_offsets_to_transaction did not return within 0.2 s"
    assert load.errors() == {error: 1}
