"""Recording a run of torch code: the recorder, what it notes, and what can be asked of the notes."""
