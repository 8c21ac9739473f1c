"""The causes wrt can name, one file each. A new one is a file here, with its page in the docs; nothing else has to know it."""
