"""Faults planted on purpose: each must be noticed by the proof, told in explain(), and answered right all the same."""
