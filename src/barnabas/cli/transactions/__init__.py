"""`barnabas transactions`: open transactions, who holds them, and an end for those that hang."""
