"""What gputally costs a node, beside nvitop-exporter on the same fake GPUs: a report, not a test."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from bench.daemon import GPUTALLY, NVITOP, WITH_KUBERNETES, Program
from bench.kubernetes import Impossible, with_kubernetes
from bench.measure import Cost, mean, measure
from bench.node import GPUS, Node, node
from bench.report import report

PROGRAMS = (GPUTALLY, NVITOP)
FEWEST_SECONDS = 10.0
MOST_PROCESSES = 2000


def main() -> None:
    """Measure at each number of processes, then print."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that what was started is ended, too
    for program in PROGRAMS:  # no start that is timed below has to compile
        subprocess.run([sys.executable, "-m", program.module, "--version"], check=True, capture_output=True)
    costs: list[Cost] = []
    without = ""
    *fewer, most = options.processes
    for processes in fewer:
        with node(processes) as here:
            costs += [_measure(program, here, options.seconds) for program in PROGRAMS]
    runs: dict[Program, list[Cost]] = {}
    for _ in range(options.rounds):  # in turns, so that a slow minute of the machine strikes all of them
        with node(most) as here:
            for program in PROGRAMS:
                runs.setdefault(program, []).append(_measure(program, here, options.seconds))
            try:
                with with_kubernetes(here) as cluster:
                    cost = _measure(WITH_KUBERNETES, cluster, options.seconds)
                    runs.setdefault(WITH_KUBERNETES, []).append(cost)
            except Impossible as reason:
                without = str(reason)
    costs += map(mean, runs.values())
    print(report(costs, without))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")


def _measure(program: Program, here: Node, seconds: float) -> Cost:
    # nvitop-exporter publishes each second: half the time gives more readings than we need.
    seconds = seconds / 2 if program is NVITOP else seconds
    note = f"{program.name}, {GPUS} GPUs, {here.processes} processes, {seconds:g} s"
    print(note, end="", file=sys.stderr, flush=True)
    cost = measure(program, here, seconds)
    print(f": {cost.cpu_round * 1e3:.2f} ms", file=sys.stderr, flush=True)
    return cost


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("--seconds", type=_seconds, default=30.0, metavar="N", help="per run; 30")
    parser.add_argument("--processes", type=_counts, default=[0, 64, 200], metavar="LIST", help="0,64,200")
    parser.add_argument(
        "--rounds", type=_rounds, default=3, metavar="N", help="runs with the most processes; 3"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    return parser.parse_args()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not FEWEST_SECONDS <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"from {FEWEST_SECONDS:g} to 3600, to see publications")
    return seconds


def _rounds(text: str) -> int:
    rounds = int(text)
    if not 1 <= rounds <= 100:
        raise argparse.ArgumentTypeError("from 1 to 100")
    return rounds


def _counts(text: str) -> list[int]:
    counts = sorted({int(part) for part in text.split(",")})
    if not 0 <= counts[0] <= counts[-1] <= MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"numbers from 0 to {MOST_PROCESSES} with commas between")
    return counts


if __name__ == "__main__":
    main()
