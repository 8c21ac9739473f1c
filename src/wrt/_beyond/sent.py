"""What a cluster is given to work on: a model once, the questions about it as often as one asks.

A state is most of what travels. It goes to a cluster with the first question about its model, and from there to each
worker that has no run of it. Later jobs bring the question alone; a worker that lost the run says so, and is asked again
with the model at hand.
"""

from __future__ import annotations

import copy
import uuid
import warnings
from collections.abc import Callable
from typing import Any

from wrt._beyond.model import Model, NotHere

GOOD = ("pending", "finished")  # what a future says whose result can be had
ABSENT = None
"""What a job gives where neither the model nor a run of it is there."""


class Sent:
    """A source on a cluster with the name of its model; the model itself where a job has to bring it."""

    def __init__(self, client: Any, source: Any, first: int) -> None:
        """`first` jobs bring the model to a cluster that never had it: as many as all workers take at once."""
        self._client, self._model = client, source.model
        self._bringing = 0 if _known(client, source.model) else first
        self._token = uuid.uuid4().hex
        named = copy.copy(source)
        named.model = source.model.without_state()
        self._named = client.submit(_itself, named, key=f"wrt-source-{self._token}", pure=False)

    def submit(self, work: Callable[..., Any], job: tuple[Any, ...], number: int, again: bool = False) -> Any:
        """The future of `work(source, *job)`; `again` after it was ABSENT."""
        model = _on(self._client, self._model) if again or self._bringing else None
        self._bringing = max(0, self._bringing - 1)
        key = f"wrt-job-{self._token}-{number}{'-again' if again else ''}"
        return self._client.submit(_worked, work, self._named, model, job, key=key, pure=False)


def _known(client: Any, model: Model) -> Any:
    """The model as a future of this cluster, if it has one that can be had."""
    found = model.sent.get(client.id)
    return found if found is not None and found.status in GOOD else None


def _on(client: Any, model: Model) -> Any:
    """The model as a future of this cluster; for others it is let go."""
    found = _known(client, model)
    if found is None:
        model.sent.clear()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once, and then from worker to worker
            found = client.submit(_itself, model, key=f"wrt-model-{uuid.uuid4().hex}", pure=False)
        model.sent[client.id] = found
    return found


def _itself(one: Any) -> Any:
    return one


def _worked(work: Callable[..., Any], source: Any, model: Model | None, job: tuple[Any, ...]) -> Any:
    if model is not None:
        source.model = model  # this worker's own copy, which it keeps with what it finds out
    try:
        return work(source, *job)
    except NotHere:
        return ABSENT
