"""Partitions on the controller: leader, ISR, reassignment and data directories."""
