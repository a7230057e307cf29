"""reference/api.md has the codes and the limits of the server."""

import re
from pathlib import Path

from reference_page import codes, rows, section

from hposvc.server import problems
from hposvc.server.archives import Limits

SERVER = Path(problems.__file__).parent
PAGE = section("The HTTP API")


def test_codes_are_on_the_page_with_their_status():
    documented = {
        code: {int(status) for status in statuses.split(",")}
        for cell, statuses, _ in rows("code", "status", "means", text=PAGE)
        for code in codes(cell)
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
