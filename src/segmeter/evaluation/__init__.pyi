from .evaluate import Evaluation as Evaluation
from .evaluate import PredictionRun as PredictionRun
from .pairing import MaskPair as MaskPair
from .pairing import Pairing as Pairing
from .pairing import find_pairs as find_pairs
from .score import Scoring as Scoring
