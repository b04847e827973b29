"""The small files of a data directory and of a log: checkpoints, identities, leader epochs."""
