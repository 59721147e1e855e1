from .config import TrainingConfig as TrainingConfig
from .data.augment_config import AugmentConfig as AugmentConfig
from .job import TrainJob as TrainJob
from .job import TrainResult as TrainResult
from .trainer import train as train
