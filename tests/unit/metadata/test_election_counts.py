"""Elections are counted by whether records may have been lost."""

from __future__ import annotations

from barnabas.metadata.image import ClusterDelta, ElectionCounts, Provenance
from barnabas.protocol.records.topics import PartitionChangeRecord
from unit.metadata.clusters import partition, three_brokers, topic, topic_id


def test_unclean_elections_and_those_of_eligible_replicas_are_counted() -> None:
    image = three_brokers(topic("a", 1), partition(1, 0, (1, 2, 3)))
    counts = ElectionCounts()

    def change(**fields: object) -> None:
        nonlocal image
        delta = ClusterDelta(image)
        record = PartitionChangeRecord(partition_id=0, topic_id=topic_id(1))
        for name, value in fields.items():
            setattr(record, name, value)
        delta.replay(record)
        image = delta.apply(Provenance(0, 0, 0))
        counts.on_image(delta, image)

    change(leader=2, isr=[2])
    change(leader=-1, isr=[], eligible_leader_replicas=[2, 3])
    assert (counts.from_eligible, counts.unclean) == (0, 0)
    change(leader=3, isr=[3], eligible_leader_replicas=[2])
    assert (counts.from_eligible, counts.unclean) == (1, 0)
    change(leader=1, isr=[1], eligible_leader_replicas=[])
    assert (counts.from_eligible, counts.unclean) == (1, 1)
    change(leader=1, isr=[1, 2])
    assert (counts.from_eligible, counts.unclean) == (1, 1)


def test_a_new_partition_counts_no_election() -> None:
    counts = ElectionCounts()
    delta = ClusterDelta(three_brokers())
    for record in (topic("a", 1), partition(1, 0, (1, 2, 3))):
        delta.replay(record)
    counts.on_image(delta, delta.apply(Provenance(0, 0, 0)))
    assert (counts.from_eligible, counts.unclean) == (0, 0)
