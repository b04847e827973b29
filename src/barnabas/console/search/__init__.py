"""Finding messages: conditions, searches that run as jobs, columns, downloads and new messages."""
