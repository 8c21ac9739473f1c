"""Deciding how a question is answered. Strategies are asked in turn; the cheapest wins and says why."""
