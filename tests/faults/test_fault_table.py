"""The fault table of docs/reliability.md: every number is there, and so is every module that tests it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| .+ \| (`.+`) \|$", re.MULTILINE)


def test_every_fault_has_tests_that_exist() -> None:
    rows = ROW.findall((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
    assert [int(number) for number, _ in rows] == list(range(1, 53))
    for number, modules in rows:
        for module in re.findall("`(.+?)`", modules):
            assert "def test_" in (ROOT / "tests" / module).read_text(encoding="utf-8"), (number, module)
