"""Facts about the cluster, gathered for `why`."""
