"""Conversion of old record formats for old clients, in steps."""
