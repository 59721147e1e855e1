from .additive import SumLoss as SumLoss
from .config import LOSSES as LOSSES
from .config import build_loss as build_loss
from .config import class_weights as class_weights
from .focal import FocalLoss as FocalLoss
from .focal import focal_loss as focal_loss
from .region import LovaszLoss as LovaszLoss
from .region import TverskyLoss as TverskyLoss
