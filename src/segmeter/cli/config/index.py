"""schemas -> what tab completion offers, small enough to be read without importing a schema."""

from typing import Any

from segmeter.cli.config.groups import schemas_of
from segmeter.cli.config.reference import PRESETS, Key, default_option, groups_of, keys_of, options_of, own_keys
from segmeter.cli.config.schema import ROOTS


def completion_index() -> dict[str, Any]:
    """For each command its own keys and its groups, each with its options and their keys; a key has its choices."""
    return {
        command: {
            "keys": {key.path: _kind(key) for key in own_keys(command)},
            "groups": {
                group: {
                    "default": default_option(command, group),
                    "options": options_of(command, group),
                    "keys": _keys(group),
                }
                for group in groups_of(command)
            },
        }
        for command in ROOTS
    }


def _keys(group: str) -> dict[str, dict[str, Any]]:
    """Keys by option; "*" where all options have the same ones."""
    if group in PRESETS:
        return {"*": {}}
    schemas = schemas_of(group)
    keys = {name: {key.path: _kind(key) for key in keys_of(schema, {})} for name, schema in schemas.items()}
    return keys if len(schemas) > 1 else {"*": next(iter(keys.values()))}


def _kind(key: Key) -> list[str] | str:
    return "path" if key.is_path else list(key.choices)
