"""The command line: `wrt <command>`. One file per command, see `app.py`."""
