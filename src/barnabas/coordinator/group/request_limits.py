"""Limits of the requests of members. Kafka has none, but its event loops are threads."""

# Topic names of a subscription, and topics of which a member owns partitions. A heartbeat with so
# many takes about 15 ms. A regular expression may match more topics.
TOPIC_NAMES_MAX = 10_000
