"""The causes wrt can name, one file a family. A new one is a `Cause` in a file here; nothing else has to know it."""
