from .config import PostprocessConfig as PostprocessConfig
from .config import StepConfig as StepConfig
from .objects import polygonise as polygonise
from .objects import region_table as region_table
from .pipeline import Cleaned as Cleaned
from .pipeline import build_steps as build_steps
from .pipeline import run_steps as run_steps
