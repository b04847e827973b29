"""Serving Produce, Fetch and DeleteRecords: reads, appends, pending requests, fetch sessions."""
