"""Writes into each wheel what is generated from the schemas: JSON Schemas for editors and the index of tab completion.

Nothing generated stands in git. An editable install does without these files.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path(__file__).parent / "src"


class GeneratedFiles(BuildHookInterface):
    """Adds the generated files to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the files, unless the install is an editable one."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, str(SOURCE))
        from segmeter.cli.completion import completion_index
        from segmeter.cli.config.json_schema import json_schema, names

        contents = {f"configs/schema/{name}.json": json_schema(name) for name in names()}
        contents["cli/completion.json"] = completion_index()
        for name, content in contents.items():
            path = Path(self.directory, "generated", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
            build_data["force_include"][str(path)] = f"segmeter/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the generated files: the wheel holds them now."""
        shutil.rmtree(Path(self.directory, "generated"), ignore_errors=True)
