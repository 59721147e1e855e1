"""Reads what a configuration declares about its keys from its JSON Schema.

Help, reference page, ``--cfg`` comments, completion and error messages all describe keys through `Node`, so they can't
disagree with each other or with the schema that editors get.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from segmeter.schema.registry import REGISTRIES

MISSING: Any = object()  # stands for a value that was not given

_KINDS = {"boolean": "true or false", "integer": "an integer", "number": "a number", "string": "text", "null": "null"}
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_SIGNS = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
    "multipleOf": "a multiple of",
}
_LONGEST = 200  # a line repeats at most this many characters of a given value


class Node:
    """One place of a schema: a model, one of its keys, or an item of a list.

    Parameters
    ----------
    schema
        Its JSON Schema.
    definitions
        The ``$defs`` that ``$ref`` in it refers to.
    """

    def __init__(self, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> None:
        target = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
        self.schema: Mapping[str, Any] = {**target, **schema}
        self._definitions = definitions
        self.choice = REGISTRIES.get(self.schema.get("component", ""))  # the components that a value chooses from
        self.default: Any = self.schema.get("default", MISSING)  # a plain value; `MISSING` if the key is required
        self.meaning = str(self.schema.get("description", ""))  # the docstring on one line
        constant = [self.schema["const"]] if "const" in self.schema else []
        self.listed: list[Any] = [*self.schema.get("enum", constant)]  # the allowed values, if the schema lists them

    @property
    def arms(self) -> "list[Node]":
        """The alternatives of a union, or the node itself if it is not a union."""
        return [self._inner(arm) for arm in self.schema["anyOf"]] if "anyOf" in self.schema else [self]

    @cached_property
    def keys(self) -> "dict[str, Node]":
        """The keys of a model, with the schema of each."""
        return {key: self._inner(schema) for key, schema in self.schema.get("properties", {}).items()}

    @property
    def items(self) -> "list[Node]":
        """The schemas of a list's items: one for all items, or one for each position."""
        if "prefixItems" in self.schema:
            return [self._inner(schema) for schema in self.schema["prefixItems"]]
        return [self._inner(self.schema["items"])] if isinstance(self.schema.get("items"), dict) else []

    @property
    def value(self) -> "Node | None":
        """The schema of a mapping's values."""
        values = self.schema.get("additionalProperties")
        return self._inner(values) if isinstance(values, dict) else None

    @property
    def parts(self) -> "Iterator[Node]":
        """The node itself and all within it: the alternatives of unions, the items of lists, the values of mappings."""
        yield self
        children = [*self.items, *([self.value] if self.value else []), *(arm for arm in self.arms if arm is not self)]
        for child in children:
            yield from child.parts

    @property
    def kinds(self) -> set[str]:
        """The JSON types of the scalars here and in lists and mappings, and "path" for a text that is a path."""
        kinds = {_TYPES[type(choice)] for choice in self.choices}
        stated = (node.schema for node in self.parts if not node.listed)
        return kinds | {schema.get("format", schema["type"]) for schema in stated if schema.get("type") in _KINDS}

    @property
    def choices(self) -> list[Any]:
        """The allowed values that are listed, here and within."""
        return [choice for node in self.parts for choice in node.listed]

    @property
    def unit(self) -> str:
        """The unit of a number, or of the numbers in a list or mapping; "" if there is none."""
        return next((str(node.schema["unit"]) for node in self.parts if "unit" in node.schema), "")

    def group(self, values: Any) -> "Node | None":
        """Return the node that has the keys of this group. `values` choose it if there are several."""
        if self.choice:
            model = self.choice.schema_of(values)
            return None if model is None else node_of(model)
        return self if "properties" in self.schema else None

    def describe(self) -> str:
        """Describe the allowed values in words: "an integer >= 1 or null", "one of gaussian, uniform"."""
        return " or ".join(dict.fromkeys(self._words({})))

    def _inner(self, schema: Mapping[str, Any]) -> "Node":
        return Node(schema, self._definitions)

    def _words(self, bounds: Mapping[str, Any]) -> Iterator[str]:
        schema = {**bounds, **self.schema}  # the bounds of a union hold for each arm
        if "words" in schema:
            yield schema["words"]
        elif self.choice:
            yield f"a {self.choice.group}: {', '.join(self.choice.names())}"
        elif "anyOf" in schema:
            for arm in self.arms:
                yield from arm._words({key: schema[key] for key in _SIGNS if key in schema})
        elif self.listed:
            yield f"one of {', '.join(map(text_of, self.listed))}"
        elif "prefixItems" in schema:
            yield f"a list of {len(self.items)}, each {self.items[0].describe()}"
        elif self.items:
            least = f", of length >= {schema['minItems']}" if "minItems" in schema else ""
            yield f"a list, each {self.items[0].describe()}{least}"
        elif self.value:
            yield f"a mapping, each value {self.value.describe()}"
        elif schema.get("type") == "object":
            yield "a group of keys"
        elif schema.get("format") == "path":
            yield "a path"
        else:
            kind = schema.get("type", "")
            limits = [f"{sign} {_number(schema[key])}" for key, sign in _SIGNS.items() if key in schema]
            limits += [f"of length >= {schema['minLength']}"] if "minLength" in schema else []
            is_limited = kind in ("integer", "number", "string") and limits
            yield _KINDS.get(kind, "a value") + (f" {' and '.join(limits)}" if is_limited else "")


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Read the docstrings below the attributes of a module's classes, by class; {} if the source can't be read."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # typed into a console, or built in
        return {}
    by_class: dict[str, dict[str, str]] = {}
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for statements in pairwise(owner.body):
            match statements:
                case ast.AnnAssign(target=ast.Name(key)), ast.Expr(ast.Constant(str(text))):
                    by_class.setdefault(owner.name, {})[key] = inspect.cleandoc(text)
    return by_class


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


@cache
def node_of(model: type[BaseModel]) -> Node:
    """Return the node of a whole schema."""
    schema = model.model_json_schema(schema_generator=_Documented)
    return Node(schema, schema.get("$defs", {}))


class _Documented(GenerateJsonSchema):
    """Also writes the docstrings of keys, and the defaults that a factory makes.

    pydantic can read docstrings too, but it does so on import, which would cost every command 0.2 s.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        json_schema = super().model_schema(schema)
        for base in reversed(schema["cls"].__mro__):
            for key, text in _docstrings(base.__module__).get(base.__name__, {}).items():
                json_schema["properties"].get(key, {})["description"] = text
        for node in (node for node in (json_schema, *json_schema["properties"].values()) if "description" in node):
            node["description"] = " ".join(node["description"].split())
        return json_schema

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        return schema["default_factory"]() if "default_factory" in schema else super().get_default_value(schema)  # type: ignore[call-arg]


def known_keys(node: Node, values: Any, prefix: str = "") -> Iterator[str]:
    """Yield every key of a schema, with those of the components that the values choose."""
    for name, key in node.keys.items():
        yield f"{prefix}{name}"
        if inner := key.group(item_of(values, name)):
            yield from known_keys(inner, item_of(values, name), f"{prefix}{name}.")


def item_of(value: Any, part: int | str) -> Any:
    """Return the item or attribute of a value, or `MISSING`."""
    if isinstance(value, Mapping):
        return value.get(part, value.get(int(part), MISSING) if str(part).isdigit() else MISSING)
    if isinstance(value, list | tuple) and isinstance(part, int):
        return value[part] if part < len(value) else MISSING
    return getattr(value, str(part), MISSING)


def text_with_quotes(value: Any) -> str:
    """Write a value as YAML does, but with text in quotes. Very long values are cut."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(text_with_quotes(item) for item in value)}]"
    elif isinstance(value, Mapping):
        text = f"{{{', '.join(f'{key}: {text_with_quotes(item)}' for key, item in value.items())}}}"
    else:
        text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def text_of(choice: Any) -> str:
    """Write an allowed value as a user types it: text without quotes."""
    return choice if isinstance(choice, str) else text_with_quotes(choice)
