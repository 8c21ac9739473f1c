"""Behind `wrt.testing`: probes, verdicts, and where a dependence was born."""
