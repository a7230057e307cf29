"""reference/http.md has the bodies and the codes of the server."""

import re
from pathlib import Path

from reference_page import codes, rows, section

from hposvc.server import problems
from hposvc.server.archives import Limits
from hposvc.server.models import Accepted
from hposvc.server.routes.maintenance import CollectBody, NotifyBody
from hposvc.server.routes.operations import OperationBody
from hposvc.server.routes.submit import ForkBody, ReproBody, SubmitBody

SERVER = Path(problems.__file__).parent
PAGE = section("HTTP")


def table(*heads):
    return {code: row for row in rows(*heads, text=PAGE) for code in codes(row[0])}


def test_bodies_are_on_the_page():
    assert set(table("body", "meaning")) == set(SubmitBody.model_fields)
    assert set(table("key", "value")) == set(OperationBody.model_fields)
    for body in (Accepted, ForkBody, ReproBody, CollectBody, NotifyBody):
        assert "{" + ",".join(f'"{name}"' for name in body.model_fields) + "}" in PAGE


def test_codes_are_on_the_page_with_their_status():
    documented = {
        code: {int(status) for status in row[1].split(",")}
        for code, row in table("code", "status", "means").items()
    }
    answered = [*problems.STATUSES.values(), *problems.EXITS.values(), (500, "bug")]
    answered += [*problems.HTTP_CODES.items(), (405, "bad_request")]
    raised = re.compile(r"ApiError\(\s*(\d{3}),\s*\"(\w+)\"")
    for file in SERVER.rglob("*.py"):
        answered += [(int(status), code) for status, code in raised.findall(file.read_text())]
    missing = {
        (status, code) for status, code in answered if status not in documented.get(code, ())
    }
    assert not missing


def test_limits_of_archives_are_on_the_page():
    limits = Limits()
    assert f"{limits.files:,} files" in PAGE
    assert f"{limits.total // 2**20} MiB unpacked or {limits.ratio} times" in PAGE
