from trainables.slots.redaction import BLOT, redact, redact_file


def test_a_secret_within_another_leaves_no_rest():
    assert redact("key-1234 and key-1234-long", ["key-1234", "key-1234-long"]) == (
        f"{BLOT} and {BLOT}"
    )


def test_a_secret_too_short_to_be_one_leaves_the_text_alone():
    assert redact("step 1 of 10", ["1"]) == "step 1 of 10"


def test_a_log_keeps_every_other_byte(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe token=hunter22\r\n\x00end")
    redact_file(log, ["hunter22"])
    assert log.read_bytes() == b"\xff\xfe token=" + BLOT.encode() + b"\r\n\x00end"


def test_a_log_without_a_secret_is_not_touched(tmp_path):
    log = tmp_path / "log"
    log.write_text("nothing")
    before = log.stat().st_mtime_ns
    redact_file(log, ["hunter22"])
    redact_file(tmp_path / "none", ["hunter22"])
    assert log.stat().st_mtime_ns == before
