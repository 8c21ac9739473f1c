"""From what a few probes show to a pattern, and from a pattern to the fewest passes. Plain NumPy, no engine."""
