"""Secrets are written nowhere, whatever way they are spelt; what looks alike stays."""

import pytest

from segmeter.cli.config.schema import Common, RunConfig
from segmeter.cli.folders import Job
from segmeter.cli.run_folder import MASK, is_secret, mask, mask_override, open_run
from segmeter.errors import ConfigError


@pytest.mark.parametrize("name", ["api_key", "apiKey", "WANDB-API-KEY", "password", "PGPASS", "webhook_url", "tokens"])
def test_names_of_secrets_are_known(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", ["key", "tokenizer", "path", "passes", "keys", "author", "patience"])
def test_names_that_look_alike_are_no_secrets(name):
    assert not is_secret(name)


def test_values_are_masked_at_any_depth_and_nothing_else():
    values = {"logger": [{"token": "x", "url": "https://me:pw@host/a"}], "gamma": 2, "token": None}
    assert mask(values) == {"logger": [{"token": MASK, "url": f"https://{MASK}@host/a"}], "gamma": 2, "token": None}
    assert mask_override("+logger={api_key: x}") == f"+logger={MASK}"


def test_a_masked_configuration_is_refused_with_the_place_of_the_secret(tmp_path):
    run = RunConfig(root=tmp_path)
    for key, config in (
        ("plugins", Common(run=run, plugins=(MASK,))),
        ("run.name", Common(run=run.replace(name=MASK))),
    ):
        with pytest.raises(ConfigError, match=rf"`{key}` is \[REDACTED\]"):
            with open_run(config, Job("eval", (), None), facts={}):
                pass
