"""Counters, rates, gauges and histograms, named after Kafka's."""
