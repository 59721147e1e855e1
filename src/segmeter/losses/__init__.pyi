from .build import build_loss as build_loss
from .config import LOSSES as LOSSES
from .focal.focal import FocalLoss as FocalLoss
from .focal.focal import focal_loss as focal_loss
from .lovasz import LovaszLoss as LovaszLoss
from .region import TverskyLoss as TverskyLoss
from .sum import SumLoss as SumLoss
from .weights import class_weights as class_weights
