"""`barnabas log`: inspect and repair the files of a data directory."""
