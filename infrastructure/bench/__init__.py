"""Measure the journal beside what it is compared with: the same work, in one run, on one machine."""
