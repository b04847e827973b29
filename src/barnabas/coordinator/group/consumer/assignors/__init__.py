"""Server-side assignors: pure functions from members and topics to a target assignment."""
