"""Plain data: what is asked, of what, how it is answered, what was found. Standard library and NumPy only."""
