"""Begin a transaction, write, report it, and wait to be killed: BOOTSTRAP TOPIC ID."""

from __future__ import annotations

import sys
import time

import barnabas

bootstrap, topic, transactional_id = sys.argv[1:]
producer = barnabas.Producer(bootstrap, transactional_id=transactional_id)
producer.init_transactions()
producer.begin_transaction()
for number in range(10):
    producer.send(topic, b"killed %d" % number, partition=0)
producer.flush()
print("written", flush=True)
time.sleep(60)
