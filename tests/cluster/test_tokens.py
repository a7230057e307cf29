import stat
import threading

from cluster.tokens import TOKEN, make_token


def test_a_token_is_secret_and_readable_by_this_user_alone(tmp_path):
    make_token(tmp_path / TOKEN)
    text = (tmp_path / TOKEN).read_text()
    assert len(bytes.fromhex(text)) == 32
    assert stat.S_IMODE((tmp_path / TOKEN).stat().st_mode) == 0o600
    make_token(tmp_path / "other")
    assert (tmp_path / "other").read_text() != text


def test_a_token_that_is_there_stays(tmp_path):
    (tmp_path / TOKEN).write_text("mine")
    make_token(tmp_path / TOKEN)
    assert (tmp_path / TOKEN).read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == [TOKEN]


def test_drafts_leave_nothing_behind(tmp_path):
    threads = [threading.Thread(target=make_token, args=(tmp_path / f"t{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t0", "t1", "t2", "t3"]
