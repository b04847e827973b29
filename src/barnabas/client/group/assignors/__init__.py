"""Assignors: which member of a group reads which partitions; the group's leader runs them."""
