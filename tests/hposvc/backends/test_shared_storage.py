"""Storage that nodes do not share is refused before a trial starts."""

import code_repository
import pytest
from simulated_sweeps import make_spec

from hposvc import spec as specs
from hposvc.backends import shared_storage
from hposvc.backends.backend import Setting
from hposvc.backends.shared_storage import check_shared
from hposvc.errors import OutOfReach
from hposvc.spec.variants import TRAVELLED
from trainables.storage.stores import StoreFailed


def setting(folder, address="10.0.0.1:6379", **sections):
    return Setting("s", make_spec(**sections), folder, folder, address)


def test_one_machine_shares_its_folders_with_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_storage, "nodes_without", lambda folder: pytest.fail("asked"))
    check_shared(setting(tmp_path, address=None))


def test_all_nodes_that_do_not_see_the_folder_are_named_with_the_remedy(tmp_path, monkeypatch):
    blind = ["n1: no such folder", "n2: another folder"]
    monkeypatch.setattr(shared_storage, "nodes_without", lambda folder: blind)
    with pytest.raises(OutOfReach, match=r"n1: no such folder; n2: another folder.*set `storage`"):
        check_shared(setting(tmp_path))


def test_a_folder_that_can_not_be_written_is_out_of_reach(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shared_storage, "nodes_without", refuse)
    with pytest.raises(OutOfReach, match="Permission denied; set `storage`"):
        check_shared(setting(tmp_path))


def test_a_store_is_tried_instead_of_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_storage, "nodes_without", lambda folder: pytest.fail("asked"))
    tried = []
    monkeypatch.setattr(shared_storage.stores, "probe", tried.append)
    check_shared(setting(tmp_path, storage="s3://bucket/sweeps"))
    [url] = tried
    assert url.startswith("s3://bucket/sweeps/")


def test_versions_of_the_code_need_a_shared_folder_beside_a_store(tmp_path, monkeypatch):
    repository = code_repository.make(tmp_path / "repository")
    spec = specs.load(code_repository.spec(repository, storage="s3://bucket/sweeps"))
    monkeypatch.setattr(shared_storage.stores, "probe", lambda url: None)
    monkeypatch.setattr(shared_storage, "nodes_without", lambda folder: ["n1: no such folder"])
    setting = Setting("s", spec, tmp_path, tmp_path, "10.0.0.1:6379")
    with pytest.raises(OutOfReach, match="or send its versions of the code by `hposvc submit`"):
        check_shared(setting)
    (repository / TRAVELLED).mkdir()
    check_shared(setting)


def test_a_store_that_refuses_is_out_of_reach(tmp_path, monkeypatch):
    def refuse(url):
        raise StoreFailed(f"{url}: access denied")

    monkeypatch.setattr(shared_storage.stores, "probe", refuse)
    with pytest.raises(OutOfReach, match="access denied"):
        check_shared(setting(tmp_path, storage="s3://bucket/sweeps"))
