"""One answer: random expressions, differentiated by SymPy and by every framework."""
