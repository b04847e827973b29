"""A group member of the Barnabas client: `barnabas_program.py member JSON` (see client_program)."""

import json
import sys
import threading

import barnabas
from barnabas.client.errors import ClientError


def report(event):
    print(json.dumps(event), flush=True)


def member(bootstrap, topic, group, session_timeout_ms, protocol="classic", strategy="range"):
    keys = {"group_protocol": protocol}
    if protocol == "classic":
        keys["session_timeout_ms"] = session_timeout_ms
        keys["heartbeat_interval_ms"] = 300
        keys["partition_assignment_strategy"] = strategy
    consumer = barnabas.Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **keys,
    )
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    reported = None
    with consumer:
        while not ended.is_set():
            records = list(consumer.poll(0.1))
            partitions = sorted(each.partition for each in consumer.assignment())
            if partitions != reported:
                report({"partitions": partitions})
                reported = partitions
            if not records:
                continue
            try:
                consumer.commit()
            except ClientError as error:
                # The group is in another generation. The new owner reads the records again.
                report({"commit": str(error)})
                for each in reversed(records):
                    place = barnabas.TopicPartition(each.topic, each.partition)
                    if place in consumer.assignment():
                        consumer.seek(place, each.offset)
                continue
            report({"values": [each.value.decode() for each in records]})


if __name__ == "__main__":
    assert sys.argv[1] == "member", sys.argv
    member(**json.loads(sys.argv[2]))
