"""The command line: `wrt <command>`, see `app.py`."""
