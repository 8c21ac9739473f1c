"""What a page may ask for, wait for and carry, where nobody says otherwise."""

QUESTION_PASSES = 4096
"""What one question may cost, in sweeps of the engine."""

BODY_BYTES = 64 * 1024
"""Of a question; the longest honest one has a few hundred."""

QUEUE_QUESTIONS = 16
"""That wait at once, the one that runs included."""

IDLE_SECONDS = 30.0
"""After which a thread without questions ends, and a connection that says nothing."""

SAVED_SECONDS = 15.0
"""Of computing for a saved page that nobody asked for in particular."""
