"""gputally's own names: base units, one meaning per family, `sum()` always right."""

from gputally.dialects.native.exporter import BARE_METRICS, EXPORTER_METRICS
from gputally.dialects.native.gpu import GPU_METRICS
from gputally.dialects.native.profiling import PROFILING_METRICS
from gputally.dialects.native.work import NAMESPACE_METRICS, PROCESS_METRICS, WORKLOAD_METRICS

METRICS = (
    EXPORTER_METRICS
    + GPU_METRICS
    + PROFILING_METRICS
    + WORKLOAD_METRICS
    + NAMESPACE_METRICS
    + PROCESS_METRICS
)

__all__ = ["BARE_METRICS", "METRICS"]
