"""The Kubernetes manifests: valid by the schemas of Kubernetes, and in agreement with the code and with each other."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from decided.engines.api import KINDS
from decided.engines.remote.engine import _CHECK_TIMEOUT_S
from decided.settings import Settings, all_settings, load, variable
from decided.version import VERSION
from tests.deploy.kustomize import Manifest, build, identity
from tests.test_docs import routes

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = ["vllm", "in-process"]
OLDEST, NEWEST = "1.30", "1.37"  # 1.30 is the first with a preStop that sleeps
BUILT = {name: build(FOLDER / name) for name in ("base", *OVERLAYS)}
EVERY = [(name, manifest) for name, manifests in BUILT.items() for manifest in manifests]


def label(value: object) -> str:
    return "-".join(identity(value)).lower() if isinstance(value, dict) else str(value)


def of_kind(overlay: str, kind: str, name: str) -> Manifest:
    (found,) = [one for one in BUILT[overlay] if identity(one) == (kind, name)]
    return found


def pod(workload: Manifest) -> Any:
    return workload["spec"]["template"]["spec"]


def container(workload: Manifest) -> Any:
    (found,) = pod(workload)["containers"]
    return found


def decided(overlay: str) -> Any:
    return container(of_kind(overlay, "Deployment", "decided"))


def environment(found: Any) -> dict[str, str]:
    """What the container is given, with the values of secrets made up."""
    return {one["name"]: one.get("value", "some-secret") for one in found["env"]}


def settings(overlay: str) -> Settings:
    return load({}, environment(decided(overlay)))


def workloads(overlay: str) -> list[Manifest]:
    return [one for one in BUILT[overlay] if "template" in one["spec"]]


# --- valid ---


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize(("overlay", "manifest"), EVERY, ids=label)
def test_schema(overlay: str, manifest: Manifest, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_validator_sees_mistakes() -> None:
    broken = json.loads(json.dumps(of_kind("base", "Deployment", "decided")))
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, NEWEST, strict=True)


def test_every_file_is_used() -> None:
    for folder in FOLDER.iterdir():
        plan = yaml.safe_load((folder / "kustomization.yaml").read_text())
        named = {*plan["resources"], *(patch["path"] for patch in plan.get("patches", []))} - {"../base"}
        assert {path.name for path in folder.iterdir()} == named | {"kustomization.yaml"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_builds_the_same(overlay: str) -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER / overlay)], capture_output=True, text=True, check=True)
    assert canonical(list(yaml.safe_load_all(done.stdout))) == canonical(BUILT[overlay])


def canonical(value: Any) -> Any:
    """Without the order of named things, which means nothing."""
    if isinstance(value, dict):
        return {key: canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((canonical(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


# --- in agreement with the code ---


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_settings(overlay: str) -> None:
    given = environment(decided(overlay))
    assert set(given) <= {variable(item) for item in all_settings()}
    kind, _, name = settings(overlay).model.partition(":")
    assert kind in KINDS
    assert bool(name) == (kind != "embedded")
    assert settings(overlay).port == decided(overlay)["ports"][0]["containerPort"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes(overlay: str) -> None:
    found = decided(overlay)
    probes = {name: found[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    for probe in probes.values():
        assert routes()[probe["httpGet"]["path"]] == "GET"
        assert probe["httpGet"]["port"] == found["ports"][0]["name"]
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert (paths["startup"], paths["readiness"]) == ("/health", "/ready")
    assert probes["readiness"]["timeoutSeconds"] > _CHECK_TIMEOUT_S


def test_an_engine_that_is_down_restarts_nothing_and_a_dead_worker_does() -> None:
    assert decided("vllm")["livenessProbe"]["httpGet"]["path"] == "/health"
    probe = decided("in-process")["livenessProbe"]
    assert probe["httpGet"]["path"] == "/ready"
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_grace_period(overlay: str) -> None:
    """Longer than it takes to leave the load balancers, to answer the last request, and to end."""
    grace = pod(of_kind(overlay, "Deployment", "decided"))["terminationGracePeriodSeconds"]
    assert (
        grace >= decided(overlay)["lifecycle"]["preStop"]["sleep"]["seconds"] + settings(overlay).request_timeout_s + 10
    )


def test_images() -> None:
    assert decided("base")["image"] == f"decided:{VERSION}"
    engine = container(of_kind("vllm", "StatefulSet", "vllm"))["image"]
    version = re.fullmatch(r"vllm/vllm-openai:v(\d+)\.(\d+)\.\d+", engine)
    assert version is not None
    assert (int(version[1]), int(version[2])) >= (0, 26)  # the first that shows the labels it is asked for


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_key_file(overlay: str) -> None:
    found = decided(overlay)
    (mount,) = [one for one in found["volumeMounts"] if one["name"] == "keys"]
    file = settings(overlay).api_key_file
    assert file is not None
    assert str(file.parent) == mount["mountPath"]
    assert mount["readOnly"] is True
    (volume,) = [one for one in pod(of_kind(overlay, "Deployment", "decided"))["volumes"] if one["name"] == "keys"]
    assert (
        f"create secret generic {volume['secret']['secretName']} --from-file={file.name}="
        in (FOLDER / "base/deployment.yaml").read_text()
    )


# --- in agreement with each other ---


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_ports_and_labels(overlay: str) -> None:
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in workloads(overlay)}
    ports = {one["metadata"]["name"]: container(one)["ports"] for one in workloads(overlay)}
    for one in BUILT[overlay]:
        name, spec = one["metadata"]["name"], one["spec"]
        match one["kind"]:
            case "Service":
                assert spec["selector"] == labels[name]
                assert {port["targetPort"] for port in spec["ports"]} <= {port["name"] for port in ports[name]}
            case "Deployment" | "StatefulSet" | "PodDisruptionBudget":
                assert spec["selector"]["matchLabels"] == labels[name]
            case "NetworkPolicy":
                assert spec["podSelector"]["matchLabels"] == labels[name]
                assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
            case "HorizontalPodAutoscaler":
                target = (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
                assert target in [identity(workload) for workload in workloads(overlay)]
                assert 2 <= spec["minReplicas"] < spec["maxReplicas"]
    assert "replicas" not in of_kind(overlay, "Deployment", "decided")["spec"]  # the autoscaler has them


def test_decided_finds_vllm() -> None:
    engine = of_kind("vllm", "StatefulSet", "vllm")
    service = of_kind("vllm", "Service", "vllm")
    assert settings("vllm").remote_url == f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert settings("vllm").model == f"vllm:{container(engine)['args'][0]}"
    assert engine["spec"]["serviceName"] == service["metadata"]["name"]
    assert f"--port={container(engine)['ports'][0]['containerPort']}" in container(engine)["args"]
    keys = [
        one["valueFrom"]["secretKeyRef"]
        for found in (decided("vllm"), container(engine))
        for one in found["env"]
        if one["name"] in ("SERVICE_REMOTE_API_KEY", "VLLM_API_KEY")
    ]
    assert keys == [keys[0]] * 2


def test_the_way_to_vllm_is_open_and_no_other() -> None:
    engine = of_kind("vllm", "StatefulSet", "vllm")
    labels = engine["spec"]["template"]["metadata"]["labels"]
    port = container(engine)["ports"][0]
    to_engine, to_names = of_kind("vllm", "NetworkPolicy", "decided")["spec"]["egress"]
    assert to_engine["to"] == [{"podSelector": {"matchLabels": labels}}]
    assert [one["port"] for one in to_engine["ports"]] == [port["containerPort"]]
    assert {one["port"] for one in to_names["ports"]} == {53}
    (entry,) = of_kind("vllm", "NetworkPolicy", "vllm")["spec"]["ingress"]
    own = of_kind("vllm", "Deployment", "decided")["spec"]["template"]["metadata"]["labels"]
    assert entry["from"] == [{"podSelector": {"matchLabels": own}}]
    assert [one["port"] for one in entry["ports"]] == [port["name"]]
    assert of_kind("in-process", "NetworkPolicy", "decided")["spec"]["egress"] == []


# --- safe ---


@pytest.mark.parametrize(
    ("overlay", "workload"), [(name, one) for name in OVERLAYS for one in workloads(name)], ids=label
)
def test_hardening(overlay: str, workload: Manifest) -> None:
    found, around = container(workload), pod(workload)
    assert around["securityContext"]["runAsNonRoot"] is True
    assert around["securityContext"]["runAsUser"] > 0
    assert around["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert around["automountServiceAccountToken"] is False
    assert around["enableServiceLinks"] is False
    assert found["securityContext"]["allowPrivilegeEscalation"] is False
    assert found["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= set(found["resources"]["requests"])
    assert "memory" in found["resources"]["limits"]
    assert not found["image"].endswith(":latest")
    if found["name"] == "decided":
        assert found["securityContext"]["readOnlyRootFilesystem"] is True


def test_no_secret_is_kept_here() -> None:
    assert all(one["kind"] != "Secret" for _, one in EVERY)
    for overlay in OVERLAYS:
        secret = {variable(item) for item in all_settings() if item.metadata["secret"] and item.name != "api_key_file"}
        for one in decided(overlay)["env"]:
            assert ("value" not in one) == (one["name"] in secret)
