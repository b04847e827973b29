"""One partition's log on disk (Kafka's `storage` module); offsets are assigned only here."""
