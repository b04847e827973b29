"""A year of departures from New York: topics, a Spark pipeline, a table, alerts and a proof."""
