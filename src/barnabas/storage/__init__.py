"""One partition's log on disk (Kafka's `storage` module): offsets are assigned here and only here."""
