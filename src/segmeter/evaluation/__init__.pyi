from .mask_pairs import MaskPair as MaskPair
from .mask_pairs import Pairing as Pairing
from .mask_pairs import find_pairs as find_pairs
from .predicted import CaseRun as CaseRun
from .score import Scoring as Scoring
