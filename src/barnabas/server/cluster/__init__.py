"""The broker's view of the cluster: the current metadata image and its effects."""
