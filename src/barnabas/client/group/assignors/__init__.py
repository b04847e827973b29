"""Who of a group reads which partitions, decided by the member that leads it (F4)."""
