"""Makes a page for each metric: its row of metric-list.md, and all that is known elsewhere about it, by its name."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from segmeter.metrics.config.conventions import CONVENTIONS, OURS, differences
from segmeter.metrics.config.metrics import MEASURES
from segmeter.metrics.config.scores import find_facts
from segmeter.schema.json_schema import node_of

DOCS = Path(__file__).parent
FOLDER = "metric"
MARK = "<!-- pages of the metrics: inserted by make docs -->"  # in docs/metric-list.md
UNITS = {"": "none", "length": "that of the spacing, or pixels without one"}
UNITS["volume"] = "the square of the spacing's unit, or its cube in a volume"


@dataclass(frozen=True)
class Page:
    """A row of metric-list.md: its metrics, the cells by their heading, and the section with its text."""

    names: tuple[str, ...]  # nsd, not nsd@t
    cells: dict[str, str]
    section: str
    text: str


def read_pages() -> dict[str, Page]:
    """Read every row of every table of metric-list.md, by the path of its page. "The same" tools are written out."""
    pages, equal = {}, ""
    for section in (DOCS / "metric-list.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, *paragraphs = section.split("\n\n")
        text = "\n\n".join(one for one in paragraphs if one[0] not in "|<")
        head, *rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.split("\n") if line[:2] == "| "] or [[]]
        for row in rows:
            cells = {heading.strip(): cell.strip() for heading, cell in zip(head, row, strict=True)}
            equal = cells["equal to"] = cells["equal to"].replace("the same", equal)
            names = tuple(dict.fromkeys(re.findall(r"`(\w+)", cells.pop("metric"))))
            pages[f"{FOLDER}/{names[0]}"] = Page(names, cells, title, text)
    return pages


def link_pages(source: str) -> str:
    """Let the names in the tables of metric-list.md lead to their pages, and list the pages."""
    paths = {name: path for path, page in read_pages().items() for name in page.names}

    def link(cell: re.Match[str]) -> str:
        return re.sub(r"`(\w+)[^`]*`", lambda name: f"[{name[0]}]({paths[name[1]]}.md)", cell[0])

    tree = ["```{toctree}", ":hidden:", "", *dict.fromkeys(paths.values()), "```"]
    return re.sub(r"^\| `[^|]*", link, source, flags=re.MULTILINE).replace(MARK, "\n".join(tree))


def write_page(page: Page, pictures: str) -> str:
    """Write the page of a row, as Markdown; `pictures` is the section with its pitfalls."""
    text = "\n".join([*_row(page), "", *_definitions(page), pictures, "", *_measure(page), "", *_presets(page), ""])
    return re.sub(r"\]\((?![a-z]+:)", "](../", text)  # the page is one folder deeper


def _row(page: Page) -> Iterator[str]:
    """Return the row as a table, with the unit, and the directions if they are not the same for all of its metrics."""
    yield from (f"# {_code(page.names)}", "")
    anchor = page.section.lower().replace(" ", "-")
    yield from (f"[{page.section}](metric-list.md#{anchor}): {page.text}", "", "| | |", "|---|---|")
    facts = {name: found for name in page.names if (found := find_facts(name))}
    known = next((UNITS.get(one.unit, one.unit) for one in facts.values()), "none")
    stated = re.search(r" in (mm|bits|nats|pixels|the unit of the spacing)$", page.cells["definition"])
    more = {"unit": stated[1] if stated else known}
    if len({one.better for one in facts.values()}) > 1:
        ways = ("higher", "lower")
        more |= {f"{way} is better": _code(name for name in facts if facts[name].better == way) for way in ways}
    for heading, cell in (page.cells | more).items():
        shown = cell or ("no tool that the tests run" if heading == "equal to" else "")
        yield from [f"| {heading} | {shown} |"] if shown else []


def _definitions(page: Page) -> Iterator[str]:
    """Return the text in metrics.md about its metrics, or of their measure."""
    known = (*page.names, page.cells.get("measure", "-").strip("`"))
    definitions = (DOCS / "metrics.md").read_text(encoding="utf-8").partition("\n## Definitions\n")[2]
    for item in re.split(r"^\* ", definitions.partition("\n## ")[0], flags=re.MULTILINE)[1:]:
        if re.match(rf"\*\*`({'|'.join(known)})`", item):
            yield from (textwrap.dedent(f"  {item}"), "")


def _measure(page: Page) -> Iterator[str]:
    """How the measure is described where it is declared."""
    if measure := page.cells.get("measure", "").strip("`"):
        yield from (f"## The measure `{measure}`", "", node_of(MEASURES.schema_of(measure)).meaning, "")
        yield f"[Its options](configuration.md#in-metrics-measures-{measure.replace('_', '-')})"


def _presets(page: Page) -> Iterator[str]:
    """Return the conventions that have this score as a headline."""
    means = {"mean_iou", "mean_dice"} & {*page.names}
    figures = {name.removeprefix("mean_") for name in means} or {*page.names} - {"iou", "dice"}
    found = [one for one in CONVENTIONS.values() if one is not OURS and figures & {*one.figures}]
    if found:
        yield from ("## Under another tool's convention", "")
        yield "`metrics.convention=NAME` takes the choices of a tool: see [why tools differ](why-tools-differ.md)."
        yield from ("", "| NAME | tool | what differs from ours |", "|---|---|---|")
    for one in found:
        yield f"| `{one.name}` | {one.tool} | {'; '.join(differences(one, surfaces=not means)) or 'nothing'} |"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
