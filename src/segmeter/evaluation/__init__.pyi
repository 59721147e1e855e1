from .evaluate import Evaluation as Evaluation
from .pairing import MaskPair as MaskPair
from .pairing import Pairing as Pairing
from .pairing import pair_masks as pair_masks
from .predict import PredictionRun as PredictionRun
from .score import Scoring as Scoring
