"""Whatever is asked of the server, it answers as its schema says, and never breaks.

Schemathesis makes requests from the schema: well-formed ones, malformed ones, and in the stateful
form sequences of requests that use what earlier answers gave.
"""

import zlib

import pytest
import recorded_home
from hypothesis import HealthCheck, given, settings

from hposvc.server.app import create_app
from hposvc.server.routes import events
from hposvc.server.service import Service

SWEEPS = ("ended", "front", "copies", "paused", "cut-off", "queued", "later", "last")
NAMES = {"id": SWEEPS, "t": ("t0001", "t0002")}  # of paths
UNHURRIED = {
    "deadline": None,
    "suppress_health_check": [*HealthCheck],
    "derandomize": True,
}


def as_it_is(context, value):
    """Send a body of bytes."""
    return value if isinstance(value, bytes) else repr(value).encode()


@pytest.fixture
def described(tmp_path, monkeypatch):
    """Return the schema of a server with recorded sweeps, whose requests do not wait long.

    Schemathesis starts the application with the first request, and ends it with the test.
    """
    import schemathesis  # it takes seconds, which no other file of tests needs

    schemathesis.serializer("application/zip")(as_it_is)
    monkeypatch.setattr(events, "LONGEST_S", 0.05)
    app = create_app(Service(recorded_home.fill(tmp_path)))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    schema.hook(map_path_parameters)
    schema.config.update(request_timeout=120)  # 10 s are too few for MLflow's first store
    return schema


def map_path_parameters(context, path_parameters):
    """Name things that exist, in three of four requests."""
    named = dict(path_parameters or {})
    for key, names in NAMES.items():
        number = zlib.crc32(repr(named.get(key)).encode())
        if key in named and number % 4:
            named[key] = names[number % len(names)]
    return named or path_parameters


def failures(described, mode, max_examples):
    """Return what is wrong with the answers to requests of each operation, by operation."""
    from schemathesis import GenerationMode
    from schemathesis.core.failures import FailureGroup
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    mode, wrong = GenerationMode[mode.upper()], {}
    for result in described.get_all_operations():
        operation = result.ok()
        if mode == GenerationMode.NEGATIVE and not operation.body and not operation.query:
            continue  # there is nothing to get wrong

        @settings(max_examples=max_examples, **UNHURRIED)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        try:
            ask()
        except (FailureGroup, Exception) as error:  # noqa: BLE001 - all are shown together
            wrong[operation.label] = f"{error}"
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_answer_is_one_of_the_schema(described, mode):
    assert not failures(described, mode, 3)


@pytest.mark.full
@pytest.mark.timeout(900)  # some minutes
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_answer_is_one_of_the_schema_at_length(described, mode):
    assert not failures(described, mode, 20)


@pytest.mark.full
def test_sequences_of_requests_are_answered_as_the_schema_says(described):
    """A request uses what an earlier one answered: a submitted sweep, its operation, its trials."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    class Sequences(described.as_state_machine()):
        def validate_response(self, response, case, **kwargs):
            case.validate_response(response, excluded_checks=[positive_data_acceptance])

    Sequences.run(settings=settings(max_examples=30, stateful_step_count=8, **UNHURRIED))
