"""gputally's own names: base units, one meaning per family, `sum()` always right."""

from gputally.dialects.native.engines import ENGINE_METRICS
from gputally.dialects.native.exporter import BARE_METRICS, EXPORTER_METRICS
from gputally.dialects.native.gpu import GPU_METRICS
from gputally.dialects.native.hardware import HARDWARE_METRICS
from gputally.dialects.native.mig import MIG_METRICS
from gputally.dialects.native.sensors import SENSOR_METRICS
from gputally.dialects.native.work import NAMESPACE_METRICS, PROCESS_METRICS, WORKLOAD_METRICS

METRICS = (
    EXPORTER_METRICS
    + GPU_METRICS
    + SENSOR_METRICS
    + HARDWARE_METRICS
    + MIG_METRICS
    + WORKLOAD_METRICS
    + NAMESPACE_METRICS
    + PROCESS_METRICS
    + ENGINE_METRICS
)

__all__ = ["BARE_METRICS", "METRICS"]
