"""Upserts into tables: a batch inserts, updates and deletes rows by their keys."""
