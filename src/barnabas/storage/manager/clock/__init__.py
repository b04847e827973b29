"""The clock by which records expire."""
