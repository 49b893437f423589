"""dcgm-exporter's promises, and the DCGM and nvidia-smi setup's, kept by the command and the dialects."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gputally.compat.dcgm_exporter import SYSTEM
from gputally.dialects.dcgm import DEFAULT
from gputally.dialects.dcgm.counters import parse
from gputally.dialects.dcgm.fields import BY_NAME, FIELDS
from tests.compat.conftest import Fleet
from tests.compat.launchers import Launcher, config, families, run
from tests.daemon import GPUTALLY, Daemon

RECORDED = Path(__file__).parent.parent / "data" / "dcgm-exporter"
DEVICE = (
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_PROFILE",
    "GPU_I_ID",
    "Hostname",
    "hostname",
)
LABELS = (*DEVICE, "DCGM_FI_DRIVER_VERSION", "container", "namespace", "pod")
SMI = ("gpu_id", "gpu_name")

# What dashboards ask of DCGM's metrics.
QUERIES = (
    "DCGM_FI_DEV_GPU_TEMP",
    "avg(DCGM_FI_DEV_GPU_TEMP)",
    "avg by (instance, gpu) (DCGM_FI_DEV_GPU_TEMP)",
    "DCGM_FI_DEV_POWER_USAGE",
    "sum(DCGM_FI_DEV_POWER_USAGE)",
    "sum by (Hostname) (DCGM_FI_DEV_POWER_USAGE)",
    "sum by (hostname) (DCGM_FI_DEV_POWER_USAGE)",
    "DCGM_FI_DEV_SM_CLOCK * 1000000",
    "DCGM_FI_DEV_MEM_CLOCK * 1000000",
    "DCGM_FI_DEV_GPU_UTIL",
    "avg by (Hostname, gpu) (DCGM_FI_DEV_GPU_UTIL)",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_FB_USED * 1024 * 1024",
    "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) * 100",
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1m]) / 1000",
    'up{job=~".*dcgm.*"}',
)
BY_POD = {"dcgm": "pod", "dcgm_plain": "exported_pod"}
TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"


def test_defaults_are_as_documented() -> None:
    told = config(SYSTEM)
    assert told.web_listen_address == ":9400"
    assert told.web_telemetry_path == "/metrics"
    assert told.interval == 30
    assert told.dialect == ("dcgm",)
    assert told.dialect_counters is None
    assert not told.dialect_pods


@pytest.mark.parametrize(
    ("words", "environ", "attribute", "value"),
    [
        (["-a", ":9401"], {}, "web_listen_address", ":9401"),
        (["--address=[::1]:9401"], {}, "web_listen_address", "[::1]:9401"),
        ([], {"DCGM_EXPORTER_LISTEN": ":9402"}, "web_listen_address", ":9402"),
        (["-c", "10000"], {}, "interval", 10),
        (["--collect-interval", "100"], {}, "interval", 1),
        ([], {"DCGM_EXPORTER_INTERVAL": "5000"}, "interval", 5),
        (["-k"], {}, "dialect_pods", True),
        (["--kubernetes=true"], {}, "kubernetes", "auto"),
        ([], {"DCGM_EXPORTER_KUBERNETES": "true"}, "dialect_pods", True),
        (["-k", "--kubernetes-gpu-id-type", "device-name"], {}, "dialect_pods", True),
        ([], {"DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE": "device-name"}, "dialect_pods", False),
        (["-d", "f"], {}, "gpus", ()),
        (["-d", "g:0,2-3"], {}, "gpus", ("0", "2", "3")),
        ([], {"DCGM_EXPORTER_DEVICES_STR": "g:1"}, "gpus", ("1",)),
        (["-k", "--kubernetes-enable-pod-uid"], {}, "dialect_pod_uid", True),
        (["--pod-resources-kubelet-socket", "/x.sock"], {}, "kubelet_podresources_socket", "/x.sock"),
        (["--hpc-job-mapping-dir", "/jobs"], {}, "hpc_job_mapping_dir", "/jobs"),
        ([], {"DCGM_HPC_JOB_MAPPING_DIR": "/jobs"}, "dialect_pods", True),
        (["-k", "--kubernetes-enable-dra"], {}, "dialect_dra", True),
        ([], {"KUBERNETES_ENABLE_DRA": "true"}, "dialect_dra", True),
        (["-o"], {}, "dialect_old_names", True),
        (["-n"], {}, "dialect_hostname", "-"),
        (["--replace-blanks-in-model-name"], {}, "dialect_model_dashes", True),
        (["--debug"], {}, "log_level", "debug"),
        (["--log-format", "json"], {}, "log_format", "json"),
        (["-m", "none", "-s", "f", "-p", "f", "-x", "1", "--fake-gpus"], {}, "interval", 30),
    ],
)
def test_every_flag_and_variable_has_its_effect(
    words: list[str], environ: dict[str, str], attribute: str, value: object
) -> None:
    assert getattr(config(SYSTEM, *words, **environ), attribute) == value


@pytest.mark.parametrize(
    "flags",
    [
        ["--nope"],
        ["-m", "monitoring:counters"],
        ["-d", "x"],
        ["--kubernetes-gpu-id-type", "name"],
        ["-c", "soon"],
        ["-f", "/not/there.csv"],
        ["--web-systemd-socket"],
    ],
)
def test_what_cannot_be_done_is_named_with_the_usage(flags: list[str]) -> None:
    code, said = run("dcgm-exporter", *flags)
    assert code == 2
    assert "usage: dcgm-exporter" in said


def test_metrics_labels_and_types(fleet: Fleet) -> None:
    server = fleet.servers["dcgm"]
    assert isinstance(server, Launcher)
    told = families(server.text("/metrics"))
    wanted = {c.field: (c.type, LABELS) for c in DEFAULT if c.type != "label" and "_PROF_" not in c.field}
    assert told == wanted


def test_the_default_counters_are_those_that_a_real_one_wrote() -> None:
    text = (RECORDED / "kubernetes-8-pods.prom").read_text()
    real = {name: kind for name, (kind, _) in families(text).items()}
    ours = {counter.field: counter.type for counter in DEFAULT}
    assert real.items() <= ours.items()


@pytest.mark.parametrize("file", ["kubernetes-8-pods.prom", "devices.prom"])
def test_a_real_ones_labels_are_ours_in_its_order(file: str) -> None:
    for _, labels in families((RECORDED / file).read_text()).values():
        assert [label for label in LABELS if label in labels] == list(labels)


def test_endpoints(fleet: Fleet) -> None:
    server = fleet.servers["dcgm"]
    assert server.get("/health").body == b"OK"
    assert b'<a href="/metrics">' in server.get("/").body


@pytest.mark.parametrize("job", ["dcgm", "dcgm_plain"])
@pytest.mark.parametrize("query", QUERIES)
def test_what_dashboards_ask(fleet: Fleet, job: str, query: str) -> None:
    asked = re.sub(r"(DCGM_FI_DEV_[A-Z_]+)", rf'\1{{job="{job}"}}', query)
    found = fleet.prometheus.wait_for(asked, bool)
    assert all(value >= 0 for _, value in found)


@pytest.mark.parametrize(("job", "label"), BY_POD.items())
def test_pods_under_both_settings_of_honor_labels(fleet: Fleet, job: str, label: str) -> None:
    query = f'sum by ({label}) (DCGM_FI_DEV_POWER_USAGE{{job="{job}",{label}!="",{label}!="exporter-x7"}})'
    found = fleet.prometheus.wait_for(query, lambda rows: len(rows) > 5)
    assert "llm-pretrain-worker-0" in {series[label] for series, _ in found}


def test_no_gpu_has_the_exporters_own_pod(fleet: Fleet) -> None:
    fleet.prometheus.wait_for('DCGM_FI_DEV_GPU_TEMP{job="dcgm"}', bool)
    assert not fleet.prometheus.query('DCGM_FI_DEV_GPU_TEMP{job="dcgm",pod="exporter-x7"}')


def test_profiling_fields_are_absent_without_dcgm(fleet: Fleet) -> None:
    assert TENSOR in {counter.field for counter in DEFAULT}
    fleet.prometheus.wait_for('DCGM_FI_DEV_GPU_TEMP{job="dcgm"}', bool)
    assert not fleet.prometheus.query('{__name__=~"DCGM_FI_PROF_.+"}')


def test_rows_of_a_shared_gpu_add_up_and_readings_are_repeated(fleet: Fleet) -> None:
    where = '{job="dcgm",gpu="3"}'
    rows = fleet.prometheus.wait_for(f"DCGM_FI_DEV_POWER_USAGE{where}", lambda found: len(found) >= 4)
    assert sum("pod" not in series for series, _ in rows) == 1
    assert 60 < sum(value for _, value in rows) < 720
    temperatures = fleet.prometheus.wait_for(f"DCGM_FI_DEV_GPU_TEMP{where}", bool)
    assert len({value for _, value in temperatures}) == 1
    assert len(temperatures) == len(rows) - 1
    energy = f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{where}[10s]"
    fleet.prometheus.wait_for(f"count_over_time({energy}) >= 9", lambda found: len(found) >= 3)
    [(_, ratio)] = fleet.prometheus.wait_for(
        f"sum by (gpu) (rate({energy})) / 1000"
        f" / sum by (gpu) (avg_over_time(DCGM_FI_DEV_POWER_USAGE{where}[10s]))",
        bool,
    )
    assert 0.6 < ratio < 1.5
    assert not fleet.prometheus.query(f"resets({energy}) > 0")


def test_mig_instances_have_rows_of_their_own(fleet: Fleet) -> None:
    query = 'DCGM_FI_DEV_FB_USED{job="dcgm",gpu="5",GPU_I_ID!=""}'
    rows = fleet.prometheus.wait_for(query, lambda found: len(found) == 3)
    assert all(series["GPU_I_PROFILE"] for series, _ in rows)
    whole = fleet.prometheus.wait_for('sum(DCGM_FI_DEV_POWER_USAGE{job="dcgm",gpu="5"})', bool)
    assert whole[0][1] < 720


CSV = """\
# a comment

DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, Temperature, by its new name.
DCGM_FI_DEV_POWER_VIOLATION ,  counter , Held down.
DCGM_FI_DEV_FB_TOTAL, gauge, All of it.
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, Nothing tells it.
DCGM_FI_DEV_SERIAL, label, Serial
"""


def test_counters_by_a_file(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(CSV)
    flags = ("-f", str(path), "-c", "1000", "-n", "--replace-blanks-in-model-name", "-o")
    with Launcher("dcgm-exporter", *flags) as server:
        text = server.text("/metrics")
        told = families(text)
        server.line("DCGM_FI_DEV_VGPU_LICENSE_STATUS is in the file")
    assert {name: kind for name, (kind, _) in told.items()} == {
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "gauge",
        "DCGM_FI_DEV_POWER_VIOLATION": "counter",
        "DCGM_FI_DEV_FB_TOTAL": "gauge",
    }
    assert "# HELP DCGM_FI_DEV_GPU_TEMP_CELSIUS Temperature, by its new name.\n" in text
    labels = told["DCGM_FI_DEV_FB_TOTAL"][1]
    assert labels[1] == "uuid"
    assert labels[-4:] == ("DCGM_FI_DEV_SERIAL", "container_name", "pod_namespace", "pod_name")
    assert 'modelName="NVIDIA-H100-80GB-HBM3"' in text
    assert 'hostname=""' in text
    assert "llm-pretrain" not in text  # without -k there are no pods


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge", "line 1"),
        ("# x\nDCGM_FI_DEV_GPU_TEMP, guage, x", "line 2 has 'guage'"),
        ("nvidia_temp, gauge, x", "line 1"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_DEV_GPU_TEMP, gauge, x", "again"),
    ],
)
def test_a_file_that_cannot_be_understood(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


def test_fields_have_one_id_and_one_meaning() -> None:
    assert len({field.id for field in FIELDS}) == len(FIELDS)
    assert BY_NAME["DCGM_FI_DEV_GPU_UTIL_RATIO"] is BY_NAME["DCGM_FI_DEV_GPU_UTIL"]


def test_nvidia_smi_has_all_seven_names(fleet: Fleet) -> None:
    server = fleet.servers["nvidia_smi"]
    assert isinstance(server, Daemon)
    told = families(server.get("/metrics/nvidia_smi").body.decode())
    assert told == dict.fromkeys(
        (
            "nvidia_smi_gpu_utilization_percent",
            "nvidia_smi_memory_utilization_percent",
            "nvidia_smi_memory_used_bytes",
            "nvidia_smi_memory_total_bytes",
            "nvidia_smi_temperature_celsius",
            "nvidia_smi_power_usage_watts",
            "nvidia_smi_power_draw_watts",
        ),
        ("gauge", SMI),
    )
    for name in told:
        assert fleet.prometheus.wait_for(name, bool)


def test_claims_of_dra_have_labels() -> None:
    machine = Path(__file__).parent.parent / "machines" / "kube-dra"
    command = [
        *GPUTALLY,
        "show",
        "--machine",
        f"recorded:{machine}",
        "--dialect",
        "dcgm",
        "--dialect.dra",
        "on",
    ]
    flags = ["--dialect.pod-uid", "on", "--log.level", "error"]
    text = subprocess.run([*command, *flags], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    assert families(text)["DCGM_FI_DEV_POWER_USAGE"][1][-8:-2] == (
        *("pod_uid", "dra_claim_name", "dra_claim_namespace"),
        *("dra_driver_name", "dra_pool_name", "dra_device_name"),
    )
    claimed = [line for line in text.splitlines() if 'dra_driver_name="gpu.nvidia.com"' in line]
    assert claimed
    assert all('dra_claim_name="one-gpu"' in line and 'pod="dra-pod"' in line for line in claimed)
