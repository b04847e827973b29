"""Links: topics that mirror those of another cluster, with the same offsets."""
