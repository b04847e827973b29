"""Opening the directory of a log, and its repair after a crash."""
