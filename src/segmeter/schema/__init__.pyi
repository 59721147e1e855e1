from .invalid import RuleError as RuleError
from .model import ADDED as ADDED
from .model import REQUIRED as REQUIRED
from .model import RETIRED as RETIRED
from .model import Component as Component
from .model import Config as Config
from .model import Given as Given
from .model import OneOf as OneOf
from .model import Unit as Unit
from .model import as_plain as as_plain
from .model import defaults as defaults
from .model import rule as rule
from .registry import Registry as Registry

__all__ = [
    "ADDED",
    "REQUIRED",
    "RETIRED",
    "Component",
    "Config",
    "Given",
    "OneOf",
    "Registry",
    "RuleError",
    "Unit",
    "as_plain",
    "defaults",
    "rule",
]
