"""The log of Optuna's studies, with many writers at once and requests that come twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hposvc.journal.database import Store
from hposvc.journal.studies import KeyTaken, StudyLog, StudyRequest


def test_of_requests_that_come_twice_at_once_each_is_written_once_in_one_piece(database):
    logs = [StudyLog(Store(database)) for _ in range(4)]
    requests = [(StudyRequest("ann", f"{n // 2}"), [{"n": n // 2, "part": p} for p in range(3)])
                for n in range(40)]  # fmt: skip

    def send(at):
        request, records = requests[at]
        return logs[at % len(logs)].append(records, request)

    with ThreadPoolExecutor(8) as pool:
        firsts = [*pool.map(send, range(len(requests)))]
    assert firsts[0::2] == firsts[1::2]
    assert sorted(firsts[0::2]) == [*range(0, 60, 3)]
    written = logs[0].read(0)
    for (_, records), first in zip(requests, firsts, strict=True):
        assert written[first : first + 3] == records
    assert len(written) == 60
    assert logs[0].append([{"n": 0, "part": 0}], StudyRequest("bob", "0")) == 60  # a key of his own
    for other in ([{"n": 0, "part": 0}], [*requests[0][1], {}]):
        with pytest.raises(KeyTaken):
            logs[1].append(other, StudyRequest("ann", "0"))
    assert len(logs[1].read(0)) == 61


def test_a_page_ends_before_it_has_too_many_records_or_characters(database):
    log = StudyLog(Store(database))
    assert log.page(0, 10, 10) == ([], False)
    log.append([1, 22, 333, 4444])
    assert log.page(0, 2, 100) == (["1", "22"], True)
    assert log.page(0, 10, 6) == (["1", "22", "333"], True)
    assert log.page(3, 10, 1) == (["4444"], False)
    assert log.page(4, 10, 1) == ([], False)
