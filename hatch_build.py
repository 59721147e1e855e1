"""Puts the configurations into each wheel, with what is generated from the schemas: JSON Schemas and tab completion.

Nothing generated stands in git. An editable install does without those files, and reads the checkout's configurations.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


class GeneratedFiles(BuildHookInterface):
    """Adds configurations and generated files to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, unless the install is an editable one."""
        if self.target_name != "wheel" or version == "editable":
            return
        build_data["force_include"] |= {
            str(ROOT / "configs"): "segmeter/configs",
            str(ROOT / "LICENSE"): "segmeter/LICENSE",  # packaging/score can't name a licence outside its folder
        }
        sys.path.insert(0, str(ROOT / "src"))
        from segmeter.cli.completion import completion_index
        from segmeter.cli.config.reference import json_schema, names

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
