"""Counters, rates, gauges and histograms with Kafka's names, and the listener that exposes them."""
