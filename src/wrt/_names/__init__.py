"""Names of the user's own variables: watching frames while a run is recorded, by `sys.monitoring` or `sys.settrace`."""
