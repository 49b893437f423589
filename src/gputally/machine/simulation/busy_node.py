"""The default cast: eight GPUs and all the ways in which a node is shared."""

from __future__ import annotations

from gputally.machine.simulation.cast import (
    GIB,
    MIB,
    Board,
    DockerContainer,
    Grant,
    Life,
    OwnerReference,
    Pod,
    Root,
    Session,
    Sharing,
    Unit,
    Workload,
)
from gputally.machine.simulation.rhythm import BURSTS_10_MS, INFERENCE, RAMP, SILENT, STEADY, STEPS, TRAINING

DEFAULT_BOARDS = (
    Board(idle_watts=68),
    Board(idle_watts=66),
    Board(idle_watts=64),
    Board(idle_watts=67),
    Board(idle_watts=63, sharing=Sharing.MPS),
    Board(idle_watts=70, sharing=Sharing.MIG),
    Board(idle_watts=65),
    Board(idle_watts=61),
)

_DAYS = Life(start=-140_000.0)
_HOURS = Life(start=-9_230.0)


def _deployment(namespace: str, name: str, template: str, suffix: str, container: str, *grants: Grant) -> Pod:
    return Pod(
        namespace=namespace,
        name=f"{name}-{template}-{suffix}",
        container=container,
        owners=(OwnerReference("ReplicaSet", f"{name}-{template}"),),
        labels={"app.kubernetes.io/name": name, "pod-template-hash": template},
        grants=grants,
    )


def _job(namespace: str, name: str, container: str, *grants: Grant) -> Pod:
    return Pod(
        namespace=namespace,
        name=f"{name}-{{run}}",
        container=container,
        owners=(OwnerReference("Job", name, "batch/v1"),),
        labels={"batch.kubernetes.io/job-name": name},
        grants=grants,
    )


def _stateful(namespace: str, name: str, container: str, *grants: Grant) -> Pod:
    return Pod(
        namespace=namespace,
        name=f"{name}-0",
        container=container,
        owners=(OwnerReference("StatefulSet", name),),
        labels={"app.kubernetes.io/name": name, "statefulset.kubernetes.io/pod-name": f"{name}-0"},
        grants=grants,
    )


def _workflow(namespace: str, name: str, step: str, *grants: Grant) -> Pod:
    return Pod(
        namespace=namespace,
        name=f"{name}-{{run}}-{step}-1823765294",
        container="main",
        owners=(OwnerReference("Workflow", f"{name}-{{run}}", "argoproj.io/v1alpha1"),),
        labels={"workflows.argoproj.io/workflow": f"{name}-{{run}}"},
        grants=grants,
        qos="besteffort",
    )


_ONE_POD_ON_TWO_GPUS = (
    Workload(
        home=Pod(
            namespace="ml",
            name="llm-pretrain-worker-0",
            container="pytorch",
            owners=(OwnerReference("PyTorchJob", "llm-pretrain", "kubeflow.org/v1"),),
            labels={"training.kubeflow.org/job-name": "llm-pretrain"},
            grants=(Grant(0), Grant(1)),
            qos="guaranteed",
        ),
        gpus=(0, 1),
        watts=620,
        rhythm=TRAINING,
        life=_HOURS,
        comm="pt_main_thread",
        memory_bytes=71 * GIB,
        memory_percent=62,
    ),
)

_TAKING_TURNS = (
    Workload(
        home=_deployment("search", "llm-inference", "7d9c5b8f6b", "x2k4q", "server", Grant(2)),
        gpus=(2,),
        watts=380,
        rhythm=INFERENCE,
        life=_DAYS,
        memory_bytes=34 * GIB,
        memory_percent=75,
    ),
    Workload(
        home=_deployment("search", "reranker", "6c4f7d9b88", "k8w2m", "triton", Grant(2)),
        gpus=(2,),
        watts=170,
        rhythm=BURSTS_10_MS,
        life=_DAYS,
        comm="tritonserver",
        memory_bytes=6 * GIB,
    ),
    Workload(
        home=_stateful("ml", "train-resnet", "trainer", Grant(2)),
        gpus=(2,),
        watts=450,
        rhythm=TRAINING,
        life=Life(start=35.0, lasts=240.0, every=300.0),
        memory_bytes=18 * GIB,
        memory_percent=55,
    ),
    Workload(
        home=_job("research", "eval-suite", "eval", Grant(2)),
        gpus=(2,),
        watts=290,
        life=Life(start=4.0, lasts=2.7, every=21.0),
        memory_bytes=3 * GIB,
    ),
    Workload(
        home=_deployment("search", "speech", "5f86d9c7c4", "p9v7t", "asr", Grant(3)),
        gpus=(3,),
        watts=210,
        rhythm=INFERENCE,
        life=_HOURS,
        comm="tritonserver",
        memory_bytes=9 * GIB,
        decoder_percent=35,
    ),
    Workload(
        home=_workflow("research", "embed-corpus", "embed", Grant(3)),
        gpus=(3,),
        watts=410,
        rhythm=RAMP,
        life=Life(start=12.0, lasts=74.0, every=95.0),
        memory_bytes=22 * GIB,
        memory_percent=58,
    ),
    Workload(
        home=_job("ml", "hpo-sweep", "trial", Grant(3)),
        gpus=(3,),
        watts=330,
        rhythm=STEPS,
        life=Life(start=1.5, lasts=6.2, every=33.0),
        memory_bytes=5 * GIB,
    ),
    # Sees every GPU of the node and took this one, which nobody gave to it.
    Workload(
        home=_stateful("research", "notebook-shared", "notebook"),
        gpus=(3,),
        watts=260,
        rhythm=INFERENCE,
        life=Life(start=-2_000.0),
        memory_bytes=11 * GIB,
    ),
)

_AT_ONCE = (
    Workload(
        home=Pod(
            namespace="gpu-operator",
            name="nvidia-device-plugin-mps-control-daemon-r7w6d",
            container="mps-control-daemon-ctr",
            owners=(OwnerReference("DaemonSet", "nvidia-device-plugin-mps-control-daemon"),),
            labels={"app": "nvidia-device-plugin-mps-control-daemon"},
        ),
        gpus=(4,),
        rhythm=SILENT,
        life=_DAYS,
        comm="nvidia-cuda-mps",
        memory_bytes=30 * MIB,
        mps_server=True,
    ),
    *(
        Workload(
            home=_deployment("search", "embedder", "bd4c6f95d", suffix, "encoder", Grant(4)),
            gpus=(4,),
            watts=watts,
            rhythm=INFERENCE,
            life=_DAYS,
            memory_bytes=7 * GIB,
        )
        for suffix, watts in (("2hq8z", 110), ("m5xkc", 110))
    ),
    Workload(
        home=_deployment("ml", "vision-tagger", "79d4b9c88f", "wz4nd", "tagger", Grant(4)),
        gpus=(4,),
        watts=220,
        rhythm=TRAINING,
        life=_HOURS,
        memory_bytes=12 * GIB,
        encoder_percent=15,
        decoder_percent=45,
    ),
)

_INSTANCES = (
    Workload(
        home=_stateful("research", "notebook-a", "notebook", Grant(5, 2)),
        gpus=(5,),
        watts=190,
        rhythm=TRAINING,
        life=_HOURS,
        memory_bytes=26 * GIB,
        instance=2,
    ),
    Workload(
        home=_deployment("search", "spellcheck", "6b9f75c5d7", "tq6vx", "server", Grant(5, 5)),
        gpus=(5,),
        watts=85,
        rhythm=BURSTS_10_MS,
        life=_DAYS,
        comm="tritonserver",
        memory_bytes=5 * GIB,
        instance=5,
    ),
    Workload(
        home=_workflow("ml", "nightly-report", "score", Grant(5, 9)),
        gpus=(5,),
        watts=60,
        life=Life(start=20.0, lasts=45.0, every=120.0),
        memory_bytes=8 * GIB,
        instance=9,
    ),
)

_BESIDE_KUBERNETES = (
    Workload(
        home=DockerContainer("image-upscaler", "registry.example.com/upscaler:2.4"),
        gpus=(6,),
        watts=340,
        rhythm=RAMP,
        life=_HOURS,
        memory_bytes=14 * GIB,
        encoder_percent=10,
    ),
    Workload(
        home=Unit("ollama.service"),
        gpus=(6,),
        watts=300,
        rhythm=INFERENCE,
        life=_DAYS,
        comm="ollama",
        memory_bytes=21 * GIB,
        memory_percent=80,
    ),
    Workload(
        home=Session(user=1000, number=3),
        gpus=(6,),
        watts=150,
        rhythm=STEADY,
        life=Life(start=50.0, lasts=25.0, every=110.0),
        memory_bytes=2 * GIB,
    ),
    Workload(
        home=Root(),
        gpus=(6,),
        watts=40,
        rhythm=INFERENCE,
        life=_DAYS,
        comm="gpu-selftest",
        memory_bytes=300 * MIB,
    ),
)

_HOLDS_AND_DOES_NOTHING = (
    Workload(home=_stateful("research", "notebook-b", "notebook", Grant(7)), gpus=(), life=_HOURS),
)

DEFAULT_CAST: tuple[Workload, ...] = (
    *_ONE_POD_ON_TWO_GPUS,
    *_TAKING_TURNS,
    *_AT_ONCE,
    *_INSTANCES,
    *_BESIDE_KUBERNETES,
    *_HOLDS_AND_DOES_NOTHING,
)
