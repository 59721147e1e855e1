import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "bridge.md"


def test_the_code_blocks_of_the_page_run():
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 25
    assert result.failed == 0
