"""Aggregates, events, identities, limits, decisions and errors: pure, without I/O and without a clock."""
