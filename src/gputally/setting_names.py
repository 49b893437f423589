"""Settings about those outside who name owners and grant devices to them."""

from __future__ import annotations

from gputally.owners.discovery import SECRETS
from gputally.parse import api, folder, label_key, one_of, path, socket, switch, url, words
from gputally.setting import Setting

NAMING = (
    Setting(
        "kubernetes",
        "auto",
        one_of("off", "auto", "on"),
        "off|auto|on",
        "Ask for names of pods and for what was granted to them; auto where a kubelet is found.",
    ),
    Setting(
        "kubernetes.api",
        "auto",
        api,
        "URL|auto|off",
        "The API server, watched for the pods of this node; auto inside a cluster.",
    ),
    Setting(
        "kubernetes.token-file",
        f"{SECRETS}/token",
        path,
        "PATH",
        "The token for the API server and the kubelet, read anew for every request.",
    ),
    Setting(
        "kubernetes.ca-file",
        f"{SECRETS}/ca.crt",
        path,
        "PATH",
        "Who must have signed the certificates of the API server and the kubelet.",
    ),
    Setting("kubernetes.node", "", str, "NAME", "This node's name in Kubernetes; empty for $NODE_NAME."),
    Setting("kubernetes.logs", "/var/log", folder, "DIR", "The folder that holds pods/ and containers/."),
    Setting(
        "kubernetes.pod-labels", "", words, "LIST", "Pod labels to show on gputally_workload_info as label_*."
    ),
    Setting(
        "kubernetes.pod-annotations",
        "",
        words,
        "LIST",
        "Pod annotations to show on gputally_workload_info as annotation_*.",
    ),
    Setting(
        "kubernetes.pause-label",
        "",
        label_key,
        "KEY",
        "A label of this node, such as nvidia.com/gpu.deploy.client: GPUs are let go of (see --nvml.yield) "
        "when its value begins with paused-; needs the right to watch nodes. Empty for none.",
    ),
    Setting("kubelet.root", "", path, "DIR", "The kubelet's folder; empty to read it from its command line."),
    Setting(
        "kubelet.podresources-socket",
        "",
        path,
        "PATH",
        "The pod-resources socket; empty for the one in the kubelet's folder.",
    ),
    Setting(
        "kubelet.url",
        "",
        url,
        "URL",
        "The kubelet's HTTPS port, such as https://10.0.0.7:10250, to ask for /pods; empty not to ask.",
    ),
    Setting("kubelet.insecure", "off", switch, "on|off", "Take any certificate from the kubelet."),
    Setting(
        "cri.socket",
        "off",
        socket,
        "PATH|auto|off",
        "The container runtime's socket, to ask for names; whoever may use it is as good as root. "
        "auto: as the kubelet's command line and configuration say, else where runtimes usually are.",
    ),
    Setting("docker.socket", "", path, "PATH", "Docker's socket, to ask for names; as good as root."),
    Setting("podman.socket", "", path, "PATH", "Podman's socket, to ask for names; as good as its user."),
)
