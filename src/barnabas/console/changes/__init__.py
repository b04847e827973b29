"""Changes of a cluster, which forms send. They need `--allow-changes` and a log-in."""
