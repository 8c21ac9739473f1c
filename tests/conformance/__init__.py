"""One table of scenarios, every framework, every way of asking."""
