"""A leader's validation and conversion of batches before they are appended."""
