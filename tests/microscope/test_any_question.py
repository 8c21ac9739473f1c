"""Whatever a page sends, it gets JSON or three lines: never another exception, never a hang."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wrt
from tests.microscope.conftest import model_and_input
from wrt._microscope.answer import Limits
from wrt._microscope.encode import text
from wrt._microscope.model import Microscope
from wrt.errors import WrtError

GLASS: list[Microscope] = []


def glass() -> Microscope:
    if not GLASS:
        net, x = model_and_input()
        GLASS.append(Microscope(wrt.trace(net, x, values=True), limits=Limits(passes=60)))
    return GLASS[0]


WHOLE = st.integers(-3, 12) | st.integers() | st.booleans() | st.none() | st.floats() | st.text(max_size=3)
ITEM = WHOLE | st.lists(WHOLE, max_size=3)
KNOWN = ["fc", "conv1", "conv2", "fc.bias", "x", "x#0", "fc#9", "output", "inputs[0]", "", "__class__"]
NAME = st.sampled_from(KNOWN) | st.text(max_size=8)
NAMED = st.fixed_dictionaries({"name": NAME, "index": st.none() | st.lists(ITEM, max_size=5)})
SIDE = NAMED | ITEM | st.dictionaries(st.text(), ITEM)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "name": NAME | ITEM,
        "index": st.lists(ITEM, max_size=5) | ITEM,
        "target": SIDE,
        "source": SIDE,
        "reduce": st.sampled_from([None, "sum", "norm", "eval", 3]),
        "keep": st.lists(WHOLE, max_size=3),
    },
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["hello", "graph", "tensor", "sizes", "derivative", "map", "why", "?"]), ARGS)
def test_any_question_gets_json_or_three_lines(verb: str, args: dict[str, Any]) -> None:
    try:
        told = glass().ask(verb, args)
    except WrtError as error:
        told = {"what": error.what, "stands": error.where, "write": error.write}
    assert isinstance(json.loads(text(told)), dict)
