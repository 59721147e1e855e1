"""A distribution says what its axis leaves out, and its picture escapes names."""

import numpy as np

from segmeter.api.histogram import Histogram


def test_values_beyond_0_and_1_widen_the_axis_and_others_are_counted_apart():
    wide = Histogram.of("a < b", np.array([np.nan, np.inf, 2, 7]))
    assert repr(wide) == "a < b, 4 cases, 1 undefined, 1 infinite"
    assert (wide.edges[0], wide.edges[-1], wide.counts.sum()) == (2, 7, 2)
    assert "a &lt; b" in wide._repr_svg_()
