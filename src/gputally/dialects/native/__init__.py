"""gputally's own names: base units, one meaning per family, `sum()` always right."""

from collections.abc import Sequence

from gputally.dialects.native.engines import ENGINE_METRICS
from gputally.dialects.native.exporter import BARE_METRICS, EXPORTER_METRICS
from gputally.dialects.native.gpu import GPU_METRICS
from gputally.dialects.native.hardware import HARDWARE_METRICS
from gputally.dialects.native.mig import MIG_METRICS
from gputally.dialects.native.owners import GRANT_METRICS, info
from gputally.dialects.native.profiling import PROFILING_METRICS
from gputally.dialects.native.sensors import SENSOR_METRICS
from gputally.dialects.native.work import NAMESPACE_METRICS, PROCESS_METRICS, WORKLOAD_METRICS
from gputally.metrics import Metric


def metrics(labels: Sequence[str] = (), annotations: Sequence[str] = ()) -> tuple[Metric, ...]:
    """The whole table, with these pod labels and annotations on the info row."""
    gpus = GPU_METRICS + SENSOR_METRICS + PROFILING_METRICS + HARDWARE_METRICS + MIG_METRICS
    work = WORKLOAD_METRICS + GRANT_METRICS + NAMESPACE_METRICS + PROCESS_METRICS + ENGINE_METRICS
    return (*EXPORTER_METRICS, *gpus, info(labels, annotations), *work)


METRICS = metrics()

__all__ = ["BARE_METRICS", "METRICS", "metrics"]
