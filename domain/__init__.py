"""Aggregates, events, identities, limits and decisions: pure, without input, output, clock or chance."""
