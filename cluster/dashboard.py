"""Client of a cluster's dashboard over HTTP: nodes and jobs.

Requests take milliseconds and need no connection as a driver. Source: the REST API of Ray 2.60's
dashboard (`/api/v0/...` is the state API, `/api/jobs/` the jobs API).
"""

from typing import Any
from urllib.parse import urlencode

from cluster.jobs import Jobs

MOST = 10_000  # entries that the state API returns at most
RUNNING = ("PENDING", "RUNNING")


class Dashboard(Jobs):
    """A cluster's dashboard, which lists nodes besides jobs."""

    def nodes(self) -> list[dict[str, Any]]:
        """List nodes with `node_name`, `node_ip`, `state` (ALIVE, DEAD), `resources_total`, ..."""
        answer = self.get(f"/api/v0/nodes?{urlencode({'detail': 1, 'limit': MOST})}", dict)
        return list(answer["data"]["result"]["result"])

    def jobs(self) -> list[dict[str, Any]]:
        """List drivers and submitted jobs with `submission_id` (None: a driver), `status`, ..."""
        return self.get("/api/jobs/", list)

    def used(self) -> dict[str, dict[str, float]]:
        """Return the CPUs and GPUs in use by node id, some seconds old and without new nodes."""
        status = self.get("/api/cluster_status", dict)["data"]["clusterStatus"] or {}
        by_node = (status.get("loadMetricsReport") or {}).get("usageByNode") or {}
        return {
            node: {name: usage[name][0] for name in ("CPU", "GPU") if name in usage}
            for node, usage in by_node.items()
        }

    def overview(self) -> dict[str, Any]:
        """Return the nodes with their used resources, and the running jobs, ready for display."""
        used = self.used()
        nodes = [
            {
                "name": node["node_name"],
                "host": node["node_ip"],
                "state": node["state"],
                "head": node["is_head_node"],
                "resources": {  # Ray lists each node's address as a resource too
                    name: amount
                    for name, amount in node["resources_total"].items()
                    if not name.startswith("node:")
                },
                "used": used.get(node["node_id"], {}),
            }
            for node in self.nodes()
        ]
        jobs = [
            {"job": job["submission_id"], "status": job["status"], "since": job["start_time"] / 1e3}
            for job in self.jobs()
            if job["submission_id"] and job["status"] in RUNNING
        ]
        nodes.sort(key=lambda node: (not node["head"], node["name"]))
        return {"dashboard": self.url, "nodes": nodes, "jobs": jobs}
