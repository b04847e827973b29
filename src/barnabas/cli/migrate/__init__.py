"""`barnabas migrate`: what an Apache Kafka cluster takes along when Barnabas replaces its nodes."""
