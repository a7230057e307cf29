import served


def test_operations_are_found_by_name_and_by_sweep(tmp_path):
    with served.client(tmp_path) as client:
        submitted = client.post("/api/v1/sweeps", json={"spec": served.SPEC}).json()
        operation = client.get(f"/api/v1/operations/{submitted['operation']}").json()
        assert operation["operation"] == submitted["operation"]
        assert (operation["verb"], operation["sweep"]) == ("submit", submitted["sweep"])
        assert (operation["state"], operation["errors"]) == ("running", [])
        listed = client.get("/api/v1/operations", params={"sweep": submitted["sweep"]}).json()
        assert listed == {"operations": [operation]}
        assert client.get("/api/v1/operations?sweep=other").json() == {"operations": []}
