from hposvc.journal import submitted_secrets
from hposvc.journal.home import Home


def test_secrets_are_for_the_user_alone_until_they_are_deleted(tmp_path):
    home = Home.of(tmp_path, {})
    draft = submitted_secrets.write_draft(home, {"TOKEN": "s3cret"})
    assert submitted_secrets.read(home, "s-1") == {}
    submitted_secrets.adopt(home, "s-1", draft)
    assert submitted_secrets.read(home, "s-1") == {"TOKEN": "s3cret"}
    (file,) = (tmp_path / "server" / "secrets").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    submitted_secrets.delete(home, "s-1")
    submitted_secrets.delete(home, "s-1")
    assert submitted_secrets.read(home, "s-1") == {}
