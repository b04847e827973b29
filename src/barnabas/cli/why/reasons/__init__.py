"""Reasons that `why` derives from the facts."""
