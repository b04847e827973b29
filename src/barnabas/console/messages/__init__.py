"""What a record looks like: decoded, masked, and cut to what a page has room for.

Every key, value and header that leaves the console passes through `RecordView`.
"""
