from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import read_checkpoint as read_checkpoint
from .checkpoint import write_checkpoint as write_checkpoint
from .config import MODELS as MODELS
from .config import ModelCard as ModelCard
from .foreign.config import register_model as register_model
from .segmenter import Segmenter as Segmenter
from .segmenter import build_segmenter as build_segmenter
