from .shards import Shard as Shard
from .shards import parse_shard as parse_shard
