"""A broker's replicas: leading and following partitions, high watermarks, waiting produces and fetches."""
