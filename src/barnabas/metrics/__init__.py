"""Counters, rates, gauges and histograms, with Kafka's names."""
