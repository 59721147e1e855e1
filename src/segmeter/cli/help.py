"""What a command takes, read from its schema, so that the help can't disagree with the program."""

from dataclasses import fields, is_dataclass

from segmeter.cli.convert import defaults
from segmeter.cli.groups import GROUPS
from segmeter.cli.main import COMMANDS, PLAIN
from segmeter.registry import Registry

_USAGE = {
    "train": "segmeter train data=camvid data.root=PATH model.encoder=resnet34 loss.gamma=2 training.epochs=80",
    "eval": "segmeter eval checkpoint=RUN data.root=PATH data.split=test",
    "predict": "segmeter predict checkpoint=RUN input=FOLDER_OR_FILE",
    "score": "segmeter score predictions=FOLDER references=FOLDER 'data.classes=[background,cell]'",
    "compare": "segmeter compare 'runs=[A,B]'",
    "check": "segmeter check data=camvid data.root=PATH",
    "report": "segmeter report RUN",
    "doctor": "segmeter doctor",
    "demo": "segmeter demo [folder]",
}

_FLAGS = """
flags:
  --cfg job         show the composed configuration instead of running
  --cfg job -p KEY  show one part of it
  --multirun, -m    run every combination: loss.gamma=0,1,2
  --config-dir DIR  add your own folder of YAML files
"""


def help_text(command: str) -> str:
    """Write the help of one command: its own keys with their defaults, and its groups with their options."""
    lines = [f"segmeter {command}: {COMMANDS[command]}.", "", "usage:", f"  {_USAGE[command]}"]
    if command in PLAIN:
        return "\n".join(lines) + "\n"
    from segmeter.cli.compose import CONFIGS
    from segmeter.cli.schema import ROOTS

    root = ROOTS[command]
    groups = [item.name for item in fields(root) if GROUPS.get(item.name) is item.metadata.get("registry", item.type)]
    lines += ["", "groups (choose with GROUP=OPTION, set a value with GROUP.KEY=VALUE):"]
    for group in groups:
        files = {path.stem for path in (CONFIGS / group).glob("*.yaml")}
        choice = GROUPS[group]
        options = sorted(files | set(choice.names() if isinstance(choice, Registry) else []))
        lines.append(f"  {group:<12} {', '.join(options)}")
    if command == "train":
        options = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
        lines.append(f"  {'experiment':<12} {', '.join(options)}")
    lines += ["", "keys:"]
    nested = {item.name: item.type for item in fields(root) if isinstance(item.type, type) and is_dataclass(item.type)}
    own = {k: v for k, v in defaults(root).items() if k not in groups}
    own |= {k: defaults(nested[k]) for k, v in own.items() if v == "???" and k in nested}
    for key, value in _leaves(own):
        lines.append(f"  {key} = {'(required)' if value == '???' else value}")
    return "\n".join(lines) + "\n" + _FLAGS


def _leaves(values: dict[str, object], prefix: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found += _leaves(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", "null" if value is None else value))
    return found
