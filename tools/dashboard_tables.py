"""Which dashboards there are."""

from __future__ import annotations

from tools.dashboard_dcgm import DCGM
from tools.dashboard_energy import ENERGY
from tools.dashboard_exporter import EXPORTER
from tools.dashboard_fleet import FLEET
from tools.dashboard_workloads import WORKLOADS

BOARDS = (FLEET, WORKLOADS, ENERGY, EXPORTER, DCGM)
