import pytest

from segmeter.errors import ConfigError
from segmeter.inference.config import InferenceConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tile": 31}, "inference: expected `tile` to be an integer >= 32 or null"),
        ({"overlap": 0.95}, "`overlap` to be a number >= 0 and <= 0.9"),
        ({"overlap": -0.1}, "`overlap` to be a number >= 0"),
        ({"overlap": float("nan")}, "got nan"),
        ({"tile_batch": 0}, "`tile_batch` to be an integer >= 1"),
        ({"blend": "gausian"}, "Did you mean 'gaussian'"),
        ({"threshold": 1.5}, "`threshold` to be a number >= 0 and <= 1"),
        ({"precision": "float61"}, "Did you mean 'float16'"),
        ({"batch_size": 0}, "`batch_size` to be an integer >= 1"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused(values, message):
    with pytest.raises(ConfigError) as caught:
        InferenceConfig(**values)
    assert message in str(caught.value)
