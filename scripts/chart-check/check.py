"""What `helm template` wrote (standard input) against the schemas of Kubernetes, and what a person would look at first.

    check.py CASE KUBERNETES_VERSION OUT    the configurations of ConfigMaps go to OUT/CASE.NAME.toml
"""
import pathlib
import sys

import kubernetes_validate
import yaml

case, version, out = sys.argv[1:]
# Of the Prometheus operator: not in Kubernetes' schemas.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}
objects = [one for one in yaml.safe_load_all(sys.stdin) if one]
faults, names = [], set()


def fault(one: dict, what: str) -> None:
    faults.append(f"{case}: {one['kind']}/{one['metadata']['name']}: {what}")


def check_pod(one: dict, pod: dict) -> None:
    """A pod that Kubernetes' standard `restricted` admits, apart from volumes of the host."""
    security = pod["securityContext"]
    if not (security["runAsNonRoot"] and security["runAsUser"] and security["seccompProfile"]["type"] == "RuntimeDefault"):
        fault(one, "its pod may run as root, or without a profile of system calls")
    if security["fsGroupChangePolicy"] != "OnRootMismatch" or pod["automountServiceAccountToken"] or pod["enableServiceLinks"]:
        fault(one, "its pod gets what it must not")
    volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
    for container in pod["containers"]:
        own = container["securityContext"]
        if own["allowPrivilegeEscalation"] or not own["readOnlyRootFilesystem"] or own["capabilities"] != {"drop": ["ALL"]}:
            fault(one, f"{container['name']} has privileges")
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        if mounted != volumes:
            fault(one, f"mounts {mounted}, volumes {volumes}")
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ["startupProbe", "livenessProbe"]:
            asked = container.get(probe, {})
            port = asked.get("httpGet", asked.get("tcpSocket", {})).get("port")
            if port is not None and port not in ports:
                fault(one, f"{probe} asks port {port} of {ports}")


pods = {}
for one in objects:
    key = (one["kind"], one["metadata"]["name"])
    if key in names:
        fault(one, "comes twice")
    names.add(key)
    if one["kind"] not in FOREIGN:
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except Exception as error:  # its errors have no common class
            fault(one, str(error).splitlines()[0])
    template = one.get("spec", {}).get("template", {})
    if template:
        check_pod(one, template["spec"])
        labels = template["metadata"]["labels"]
        ports = {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])}
        pods[one["metadata"]["name"]] = (labels, ports)
        # A Job's is made by Kubernetes.
        if one["kind"] != "Job" and not one["spec"]["selector"]["matchLabels"].items() <= labels.items():
            fault(one, "its selector does not find its own pods")
    for file, text in one.get("data", {}).items() if one["kind"] == "ConfigMap" else []:
        if file.endswith(".toml"):
            pathlib.Path(out, f"{case}.{one['metadata']['name']}.{file}").write_text(text)

for one in objects:
    if one["kind"] in ("Service", "PodDisruptionBudget"):
        selector = one["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        found = [ports for labels, ports in pods.values() if selector.items() <= labels.items()]
        if len(found) != 1:
            fault(one, f"selects {len(found)} of {list(pods)}")
        elif missing := {port["targetPort"] for port in one["spec"].get("ports", [])} - found[0]:
            fault(one, f"leads to ports that the pod does not have: {missing}")


def is_selected(selector: dict, labels: dict) -> bool:
    """Whether a selector of labels and of expressions, which are all `In` here, finds pods."""
    fits = (labels.get(wanted["key"]) in wanted["values"] for wanted in selector.get("matchExpressions", []))
    return selector.get("matchLabels", {}).items() <= labels.items() and all(fits)


policies = [one for one in objects if one["kind"] == "NetworkPolicy"]
for name, (labels, ports) in pods.items():
    found = [policy for policy in policies if is_selected(policy["spec"]["podSelector"], labels)]
    allowed = {port["port"] for policy in found for rule in policy["spec"]["ingress"] for port in rule.get("ports", [])}
    if len(found) != 1 or not ports <= allowed:
        faults.append(f"{case}: {name}: {len(found)} network policies, which let in {allowed} of {ports}")

print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
kinds = sorted(kind for kind, _ in names)
print(f"{case}: {len(objects)} objects: {', '.join(sorted(set(kinds)))}")
sys.exit(bool(faults))
