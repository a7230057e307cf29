"""The reports of a command's processes. If these fail, a process waits for an answer for ever."""

import json
import queue
import socket
import threading

from trainables.programs.report_socket import LINE, LOOPBACK, ProcessReport, ReportServer

WAIT_S = 60


def test_a_close_answers_all_that_wait():
    """Also when one process is answered, and gone, while the others still wait."""
    reports, answers = queue.SimpleQueue(), queue.SimpleQueue()
    answered = threading.Semaphore(0)

    def hear(said):
        if isinstance(said, ProcessReport):
            plain = said.answer
            said.answer = lambda go_on: (plain(go_on), answered.acquire(timeout=WAIT_S))
            reports.put(said)

    inbox = ReportServer(hear)
    port, _, token = inbox.variable[LINE].partition(":")

    def report():
        with socket.create_connection((LOOPBACK, int(port))) as line, line.makefile("rw") as stream:
            message = {"rank": 0, "step": 1, "metrics": {}, "no_numbers": {}}
            message |= {"checkpoint": None, "parent": 1}
            stream.write(f"{token}\n{json.dumps(message)}\n")
            stream.flush()
            answers.put(json.loads(stream.readline()))
            answered.release()

    for _ in range(3):
        threading.Thread(target=report, daemon=True).start()
    for _ in range(3):
        reports.get(timeout=WAIT_S)
    inbox.close()
    assert [answers.get(timeout=WAIT_S) for _ in range(3)] == [{"go": False}] * 3
