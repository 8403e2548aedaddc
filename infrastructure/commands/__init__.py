"""What the writer runs: each command loads states, has the domain decide, and appends the steps."""
