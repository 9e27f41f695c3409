"""Whatever is sent to the addresses that the OpenAPI description names: a typed answer."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi import checks

from tacit.store import ledger
from tests.service.running import running
from tests.service.world import make_app

CHECKS = (
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    app = make_app(tmp_path_factory.mktemp("hostile"), serve="body = 20000", window=3600)
    with running(app) as made:
        yield made


def test_whatever_is_sent(run):
    schema = schemathesis.openapi.from_url(f"{run.address}/v1/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:

        @settings(
            max_examples=5,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def try_it(case):
            for role in ("device", "curator"):
                response = case.call(headers={"Authorization": f"Bearer {run.tokens[role]}"})
                case.validate_response(response, checks=CHECKS)
                assert response.status_code not in (500, 502, 504)

        try_it()
    assert len(operations) >= 10


def test_nothing_was_taken(run):
    """After all of it: no user, no release, and the version that was there."""
    run.client("curator").post("/v1/commands", {"what": "start"})
    state = run.wait(lambda s: True)
    assert (state["version"], state["served"], state["waiting"]) == (0, 0, 0)
    with run.service.store.read() as db:
        assert {entry.event for entry in ledger.read(db)} <= {"start", "stop", "unpin", "staff"}
