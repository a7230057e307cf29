from hposvc.verbs.options import Shared


def test_options_may_stand_before_the_verb(hposvc, spec, tmp_path):
    assert hposvc("-o", "json", "--home", tmp_path / "other", "run", spec()).data["sweep"]
    assert len(hposvc("--home", tmp_path / "other", "ls", "-o", "json").data) == 1
    assert hposvc("ls", "-o", "json").data == []


def test_a_command_to_type_next_names_the_server_that_this_one_was_given():
    assert (
        Shared(server="http://here").command("trials s") == "hposvc --server http://here trials s"
    )
    for named_elsewhere in (None, ""):
        assert Shared(server=named_elsewhere).command("trials s") == "hposvc trials s"
