"""Admin calls: one file per area with its values, requests and answers; and the blocking face."""
