"""Record batches: reading, building, compression and the older message formats.

Nothing here does I/O. A partition's bytes are a run of batches (KIP-98, the v2 format); the broker
reads headers and patches them in place, clients read and build whole batches.
"""
