"""Record batches: reading, building, compression and the older message formats.

This package does no I/O. A partition's data is a sequence of batches (KIP-98, the v2 format). The
broker reads headers and patches them in place; clients read and build whole batches.
"""
