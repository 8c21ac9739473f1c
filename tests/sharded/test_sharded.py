"""A model spread over two and four processes answers every rank as the plain model would."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from tests.sharded._ranks import KINDS, work

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found; gloo over loopback, which meets in a file."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (request.param, str(folder)), nprocs=request.param)
    return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(request.param)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_rank_gets_the_answer_of_the_plain_model(kind: str, ranks: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(ranks):
        wrong = {question: away for question, away in found[kind].items() if not away < 1e-12}
        assert not wrong, f"rank {rank}: {wrong}"


def test_a_result_that_stays_sharded_is_refused_in_words(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["words"] == (
            "d() of a sharded tensor (DTensor)\n"
            "  this rank holds a part of it, and a question is about all of its elements\n"
            "  ask for tensor.full_tensor() and compute on with that, or give the module use_local_output=True\n"
            "True"
        )
