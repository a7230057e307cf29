from dataclasses import fields, replace

from trainables.training import Training
from trainables.vmap_options import PER_TRIAL, SUPPORTED, unsupported


def test_every_name_is_an_option_of_training():
    names = {field.name for field in fields(Training)}
    assert set(PER_TRIAL) | set(SUPPORTED) <= names
    assert not set(PER_TRIAL) & set(SUPPORTED)


def test_what_is_not_supported_is_named_with_what_is():
    assert list(unsupported(Training(strategy="single"))) == []
    training = replace(Training(strategy="single"), accumulate=2, optimizer="lamb")
    assert list(unsupported(training)) == [
        ("accumulate", "1"),
        ("optimizer", "task or sgd or adamw"),
    ]
