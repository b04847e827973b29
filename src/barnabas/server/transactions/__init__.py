"""What brokers do for transactions among themselves: markers and verification."""
