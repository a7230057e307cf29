"""Vizier's own tests of a client, on ours."""

import pytest
from vizier.client import client_abc_testing
from vizier.service import pyvizier as vz

import hposvc


class TestClient(client_abc_testing.TestCase):
    @pytest.fixture(autouse=True)
    def _home(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path}")

    def create_study(self, problem, study_id):
        config = vz.StudyConfig.from_problem(problem)
        return hposvc.vizier.Study.from_study_config(config, owner="me", study_id=study_id)

    def test_tuning(self):
        self.assertPassesE2ETuning()

    def test_tuning_of_several_objectives(self):
        self.assertPassesE2ETuning(multi_objective=True)
