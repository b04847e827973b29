"""`barnabas bench`: a load generator for produce, consume and end-to-end latency."""
