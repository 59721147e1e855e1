from .pairing import MaskPair as MaskPair
from .pairing import Pairing as Pairing
from .pairing import find_pairs as find_pairs
from .predicted import CaseRun as CaseRun
from .score import Scoring as Scoring
