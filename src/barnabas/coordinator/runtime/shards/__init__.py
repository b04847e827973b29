"""What a coordinator implements for each state partition, its states, and its timers."""
