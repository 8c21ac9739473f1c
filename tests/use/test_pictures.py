"""Pictures show zero as white, say what they show in words, and cost nothing until a derivative is computed."""

import matplotlib
import numpy as np
import pytest
import torch

from wrt import _pictures, d
from wrt.errors import TooLarge

matplotlib.use("Agg")


@pytest.fixture
def J():
    x = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    return d(torch.cumsum(x**2, 0)) / d(x)


@pytest.fixture(autouse=True)
def closed():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_the_scale_is_symmetric_and_the_numbers_are_those_of_J(J) -> None:
    image = J.plot().images[0]
    assert image.norm.vmin == -image.norm.vmax == -4.0
    np.testing.assert_array_equal(image.get_array(), [[2, 0, 0], [2, -4, 0], [2, -4, 1]])


def test_one_row_of_an_image_is_an_image() -> None:
    x = torch.randn(1, 1, 5, 7, requires_grad=True)
    assert (d(x.sum()) / d(x)).plot().images[0].get_array().shape == (5, 7)


def test_axes_are_taken_and_returned(J) -> None:
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    assert J.plot(ax) is ax
    assert ax.get_title() == "d(y[3]) / d(x[3])"


def test_a_notebook_shows_words_until_it_is_computed(J) -> None:
    assert "not computed" in J._repr_html_()
    J.value
    page = J._repr_html_()
    assert 'title="[1, 1] = -4"' in page
    assert "from -4 to 2, largest size 4 at [1, 1], 3 zeros" in page


def test_a_larger_matrix_shows_its_corner_and_says_so() -> None:
    assert "(top left 48 x 48 shown)" in _pictures.table(np.ones((60, 60)), "J")


def test_what_is_no_number_is_gray_and_counted() -> None:
    values = np.array([[np.nan, 1.0]])
    assert "#b7b7b7" in _pictures.table(values, "J")
    assert _pictures.alt_text(values, "J").endswith("1 not finite")


def test_a_picture_of_too_much_is_refused() -> None:
    x = torch.zeros(3000, requires_grad=True)
    with pytest.raises(TooLarge, match="plot some rows"):
        (d(x * 2) / d(x)).plot()
