"""`barnabas transactions`: show open transactions and their producers, abort hanging ones."""
