from dataclasses import fields

from trainables.training import Training
from trainables.vmap_options import PER_TRIAL, SUPPORTED


def test_every_name_is_an_option_of_training():
    names = {field.name for field in fields(Training)}
    assert set(PER_TRIAL) | set(SUPPORTED) <= names
    assert not set(PER_TRIAL) & set(SUPPORTED)
