"""The choices that dashboards share, and the label matchers that follow them."""

from __future__ import annotations

from tools.dashboard_parts import Variable

CLUSTER = Variable("cluster", "label_values(gputally_up, cluster)")
NODE = Variable("node", 'label_values(gputally_up{cluster=~"$cluster"}, node)')
GPU = Variable("gpu", 'label_values(gputally_gpu_up{cluster=~"$cluster", node=~"$node"}, gpu)')
NAMESPACE = Variable(
    "namespace",
    'label_values(gputally_namespace_energy_joules_total{cluster=~"$cluster", node=~"$node"}, namespace)',
)
WORKLOAD = Variable(
    "workload",
    'label_values(gputally_workload_active{cluster=~"$cluster", node=~"$node", namespace=~"$namespace"}, '
    "workload)",
)

ALL = (CLUSTER, NODE, NAMESPACE, WORKLOAD, GPU)

ON_NODE = 'cluster=~"$cluster", node=~"$node"'
ON_GPU = f'{ON_NODE}, gpu=~"$gpu"'
OF_NAMESPACE = f'{ON_GPU}, namespace=~"$namespace"'
OF_WORKLOAD = f'{OF_NAMESPACE}, workload=~"$workload"'
RATE = "$__rate_interval"
RANGE = "$__range"
