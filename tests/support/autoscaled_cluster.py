"""A cluster whose head has no CPU, and whose autoscaler starts nodes of one CPU on this machine.

It is Ray's own fake provider. `ray.cluster_utils.AutoscalingCluster` would end every Ray of this
machine, and reads a file that Ray's wheel lacks (2.60).
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from remote_cluster import end
from waiting import until

from cluster.local import free_ports

HEAD = "f" * 51 + "00000"  # the id of the head's node, as the provider expects it
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
LOOK = """
import json, sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
from ray.util.placement_group import placement_group_table
table = placement_group_table().values()
groups = [group["name"] for group in table if group["state"] != "REMOVED"]
nodes = [node["Alive"] for node in ray.nodes()]
print(json.dumps([len(nodes), sum(nodes), groups]))
"""


@dataclass(frozen=True)
class Autoscaled:
    """A cluster that grows from a head alone to three workers, and shrinks after six seconds."""

    address: str
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Run Python beside the cluster, and return what it prints."""
        done = subprocess.run(
            [sys.executable, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def look(self) -> tuple[int, int, list[str]]:
        """Return how many nodes there were, how many live, and the names of placement groups."""
        nodes, alive, groups = json.loads(self.run("-c", LOOK, self.address).splitlines()[-1])
        return nodes, alive, groups


@contextmanager
def start(version: int) -> Iterator[Autoscaled]:
    """Bring it up; everything of it is gone at the end.

    Args:
        version: of Ray's autoscaler.
    """
    folder = Path(tempfile.mkdtemp(prefix="hposvc-a-", dir="/tmp"))  # sockets want a short path
    gcs, client, dashboard, monitor = free_ports(4)
    address = f"{ray.util.get_node_ip_address()}:{gcs}"
    (config := folder / "cluster.json").write_text(json.dumps(_config(address)))
    clean = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    environment = {
        **clean,
        "HPOSVC_HOME": f"{folder / 'home'}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
    }
    head = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "AUTOSCALER_METRIC_PORT": monitor,
        "DASHBOARD_METRIC_PORT": dashboard,
        "RAY_FAKE_CLUSTER": "1",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    }
    if version == 2:
        head |= {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": HEAD}
    command = [f"{Path(sys.executable).with_name('ray')}", "start", "--head", "--block"]
    command += [f"--port={gcs}", f"--ray-client-server-port={client}", "--include-dashboard=false"]
    command += [f"--autoscaling-config={config}", "--num-cpus=0", "--disable-usage-stats"]
    command += [f"--temp-dir={folder / 'ray'}", "--object-store-memory=100000000"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment | head, start_new_session=True
        )
    try:
        logs = folder / "ray" / "session_latest" / "logs"
        until(
            lambda: process.poll() is None and (logs / "monitor.log").exists(),
            (folder / "log").read_text,
            120,
        )
        yield Autoscaled(address, environment)
    finally:
        end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _config(address: str) -> dict[str, Any]:
    """Return the configuration of the autoscaler, with all the keys that it insists on."""
    worker = {"CPU": 1, "object_store_memory": 100000000}
    lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray")
    return {
        "cluster_name": "fake",
        "max_workers": 3,
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            "gcs_address": address,
            "head_node_id": HEAD,
            **dict.fromkeys(("launch_multiple", "use_node_id_as_ip"), True),
            **dict.fromkeys(("disable_node_updaters", "foreground_node_launch"), True),
            **{"disable_launch_config_check": True, "worker_liveness_check": False},
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": worker, "node_config": {}, "min_workers": 0, "max_workers": 3},
        },
        **{f"{name}_commands": [] for name in (*lists, "worker_start_ray")},
        **{name: {} for name in ("auth", "file_mounts")},
        **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        "file_mounts_sync_continuously": False,
    }
