def test_options_may_stand_before_the_verb(hposvc, spec, tmp_path):
    assert hposvc("-o", "json", "--home", tmp_path / "other", "run", spec()).data["sweep"]
    assert len(hposvc("--home", tmp_path / "other", "ls", "-o", "json").data) == 1
    assert hposvc("ls", "-o", "json").data == []
