import re

from segmeter.cli.config.groups import GROUPS
from segmeter.cli.config.markdown import END, START, insert_reference, reference
from segmeter.cli.config.schema import ROOTS


def test_only_what_stands_between_the_marks_is_replaced():
    page = insert_reference(f"# Title\n\n{START}\nold\n{END}\n\nafter\n")
    assert page.startswith(f"# Title\n\n{START}\n\n## ")
    assert page.endswith(f"{END}\n\nafter\n")
    assert "\nold\n" not in page
    assert insert_reference(page) == page


def test_every_command_and_group_has_a_heading():
    headings = re.findall(r"^## (.*)$", reference(), re.MULTILINE)
    assert headings == [*(f"segmeter {command}" for command in ROOTS), *GROUPS]


def test_every_row_of_a_table_has_four_cells():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}  # a bar inside of a cell is escaped


def test_placeholders_are_not_taken_for_html():
    cells = [cell for line in reference().splitlines() if line.startswith("| `") for cell in line.split(" | ")[2:]]
    assert not [cell for cell in cells if re.search(r"<[a-z]", cell)]
