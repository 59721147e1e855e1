"""`segmeter schema` takes one name, and says which there are."""

import pytest

from segmeter.cli.commands.schema import run
from segmeter.errors import ConfigError


@pytest.mark.parametrize("arguments", [[], ["train", "loss"]])
def test_not_exactly_one_name_is_refused_with_those_there_are(arguments):
    with pytest.raises(ConfigError, match=rf"schema: expected one name, got {len(arguments)}. Known: .*train"):
        run(arguments)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        run(["trian"])
