"""Rows about what the parts of a GPU do, where profiling counters tell: DCGM, or NVML on new GPUs."""

from __future__ import annotations

from gputally.dialects.native.scopes import DEVICE
from gputally.metrics import GAUGE, Metric

PROFILING_METRICS = (
    Metric(
        DEVICE,
        "gputally_gpu_graphics_active_ratio",
        GAUGE,
        "Part of time in which the graphics or compute engine was busy.",
        lambda device: device.graphics_active_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_sm_active_ratio",
        GAUGE,
        "Part of the multiprocessors' time in which they had at least one warp; averaged over all of them.",
        lambda device: device.sm_active_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_sm_occupancy_ratio",
        GAUGE,
        "Warps on the multiprocessors as a part of the most they could hold.",
        lambda device: device.sm_occupancy_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_tensor_active_ratio",
        GAUGE,
        "Part of time in which the tensor pipes were busy.",
        lambda device: device.tensor_active_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_dram_active_ratio",
        GAUGE,
        "Part of time in which the memory interface sent or received data.",
        lambda device: device.dram_active_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_fp64_active_ratio",
        GAUGE,
        "Part of time in which the FP64 pipes were busy.",
        lambda device: device.fp64_active_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_fp32_active_ratio",
        GAUGE,
        "Part of time in which the FP32 pipes were busy.",
        lambda device: device.fp32_active_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_fp16_active_ratio",
        GAUGE,
        "Part of time in which the FP16 pipes were busy, without tensor operations.",
        lambda device: device.fp16_active_ratio,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_pcie_transmit_bytes_per_second",
        GAUGE,
        "Data the GPU sends over PCIe, headers included; a rate over the last period, not a counter.",
        lambda device: device.pcie_transmit_bytes_per_second,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_pcie_receive_bytes_per_second",
        GAUGE,
        "Data the GPU gets over PCIe, headers included; a rate over the last period, not a counter.",
        lambda device: device.pcie_receive_bytes_per_second,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_nvlink_transmit_bytes_per_second",
        GAUGE,
        "Data the GPU sends over NVLink; a rate over the last period, not a counter.",
        lambda device: device.nvlink_transmit_bytes_per_second,
    ),
    Metric(
        DEVICE,
        "gputally_gpu_nvlink_receive_bytes_per_second",
        GAUGE,
        "Data the GPU gets over NVLink; a rate over the last period, not a counter.",
        lambda device: device.nvlink_receive_bytes_per_second,
    ),
)
