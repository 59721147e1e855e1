from .config import InferenceConfig as InferenceConfig
from .device import pick_device as pick_device
from .predictor import Predictor as Predictor
from .results import Prediction as Prediction
