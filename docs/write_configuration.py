"""Write what is generated from the schemas: docs/configuration.md's reference, configs/schema/, and tab completion."""

import json
from pathlib import Path

from segmeter.cli.completion import INDEX
from segmeter.cli.config.index import completion_index
from segmeter.cli.config.json_schema import json_schema, names
from segmeter.cli.config.markdown import insert_reference

ROOT = Path(__file__).parents[1]


def generated() -> dict[Path, str]:
    """Every generated file with its text."""
    page = ROOT / "docs" / "configuration.md"
    schemas = {ROOT / "configs" / "schema" / f"{name}.json": _json(json_schema(name)) for name in names()}
    return {page: insert_reference(page.read_text()), INDEX: _json(completion_index()), **schemas}


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
