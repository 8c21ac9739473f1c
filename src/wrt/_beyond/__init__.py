"""Beyond one process: models that travel, blocks computed anywhere, answers on disk, data sets."""
