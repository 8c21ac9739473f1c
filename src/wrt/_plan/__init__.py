"""How a question is best answered: strategies that look at the graph and at a few rows, and return plans with reasons."""
