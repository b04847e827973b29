"""`barnabas log`: reading the files of a data directory, a running broker's too."""
