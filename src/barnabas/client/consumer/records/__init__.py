"""The records of a poll, as objects, columns and Arrow tables."""
