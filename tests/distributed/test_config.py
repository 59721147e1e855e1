"""launch=: its kinds, the ends of each range, and all that is wrong at once."""

import pytest

from segmeter.distributed.config import (
    LAUNCHES,
    DaskConfig,
    JoblibConfig,
    LocalConfig,
    ProcessesConfig,
    SlurmConfig,
)
from segmeter.errors import ConfigError

KINDS = {
    "local": LocalConfig,
    "processes": ProcessesConfig,
    "joblib": JoblibConfig,
    "dask": DaskConfig,
    "slurm": SlurmConfig,
}


def test_each_kind_is_registered_by_its_name() -> None:
    assert {name: LAUNCHES.schema(name) for name in LAUNCHES.names()} == KINDS
    assert {name: kind().name for name, kind in KINDS.items()} == {name: name for name in KINDS}
    with pytest.raises(ConfigError, match=r"launch: .*'slrum'.* Did you mean 'slurm'\?"):
        LAUNCHES.schema("slrum")


@pytest.mark.parametrize(("kind", "key", "good", "bad"), [
    (ProcessesConfig, "devices", (1, 1024), (0, 1025, 1.5)),
    (JoblibConfig, "n_jobs", (None, 1), (-1, 0)),
    (DaskConfig, "shards", (1,), (0,)),
    (DaskConfig, "workers", (1, 256), (0, 257)),
    (DaskConfig, "address", (None, "tcp://host:8786"), (8786,)),
    (SlurmConfig, "cluster", ("slurm", "local", "debug"), ("slrum",)),
    (SlurmConfig, "timeout_min", (1,), (0,)),
    (SlurmConfig, "gpus_per_node", (None, 0), (-1,)),
    (SlurmConfig, "requeues", (0,), (-1,)),
], ids=str)  # fmt: skip
def test_ranges_hold_at_their_ends(kind, key, good, bad):
    for value in good:
        assert getattr(kind(**{key: value}), key) == value  # type: ignore[arg-type]
    for value in bad:
        with pytest.raises(ConfigError, match=f"launch: expected `{key}` .*got {value!r}"):
            kind(**{key: value})  # type: ignore[arg-type]
