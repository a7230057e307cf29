import hashlib

import served


def test_an_archive_is_stored_once_and_used_by_a_sweep(tmp_path):
    content = served.zipped({"curves.py": "def bowl(params, step):\n    return {}, 1.0\n"})
    sha256 = hashlib.sha256(content).hexdigest()
    with served.client(tmp_path) as client:
        stored = client.put(f"/api/v1/archives/{sha256}", content=content)
        assert (stored.status_code, stored.json()) == (201, {"archive": sha256, "created": True})
        assert client.put(f"/api/v1/archives/{sha256}", content=content).status_code == 200
        body = {"spec": served.SPEC, "archive": sha256}
        sweep = client.post("/api/v1/sweeps", json=body).json()["sweep"]
        assert client.get(f"/api/v1/sweeps/{sweep}/archive").content == content
        assert client.get(f"/api/v1/sweeps/{sweep}").json()["owner"] is not None


def test_another_content_than_the_name_says_is_refused(tmp_path):
    with served.client(tmp_path) as client:
        response = client.put(f"/api/v1/archives/{'0' * 64}", content=served.zipped({"a": ""}))
        assert (response.status_code, served.errors(response)[0]["code"]) == (400, "bad_request")
        response = client.put("/api/v1/archives/..", content=b"")
        assert response.status_code in (400, 404, 405)
        assert client.put("/api/v1/archives/ABC", content=b"").status_code == 400
