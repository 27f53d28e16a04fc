# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""For how much of the time from one moment to another a GPU was at work, by its own counters (NVML's GPM, Hopper and later). Unlike
the samples of utilisation these are not cut to whole percent, which is a tenth of a share of 10."""

import ctypes

GRAPHICS_UTIL = 1  # NVML_GPM_METRIC_GRAPHICS_UTIL: percentage of time in which anything computed
METRICS = 333  # NVML_GPM_METRIC_MAX of NVML 13


class Metric(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("result", ctypes.c_int), ("value", ctypes.c_double), ("names", ctypes.c_char_p * 3)]


class MetricsGet(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("count", ctypes.c_uint), ("first", ctypes.c_void_p), ("second", ctypes.c_void_p),
                ("metrics", Metric * METRICS)]


class Support(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("supported", ctypes.c_uint)]


class Counters:
    """Of one GPU, by a library that is initialised."""

    def __init__(self, nvml, device):
        self.nvml, self.device = nvml, device
        support = Support(1, 0)
        self.able = hasattr(nvml, "nvmlGpmMetricsGet") and nvml.nvmlGpmQueryDeviceSupport(device, ctypes.byref(support)) == 0 and support.supported != 0

    def mark(self):
        """This moment; None where there are no counters."""
        sample = ctypes.c_void_p()
        if not self.able or self.nvml.nvmlGpmSampleAlloc(ctypes.byref(sample)) != 0:
            return None
        if self.nvml.nvmlGpmSampleGet(self.device, sample) == 0:
            return sample
        self.nvml.nvmlGpmSampleFree(sample)
        return None

    def between(self, first, second):
        """Busy percent between two marks, which are of no use then; None when the GPU does not say."""
        percent = None
        if first is not None and second is not None:
            get = MetricsGet(1, 1, first, second)
            get.metrics[0].id = GRAPHICS_UTIL
            if self.nvml.nvmlGpmMetricsGet(ctypes.byref(get)) == 0 and get.metrics[0].result == 0:
                percent = get.metrics[0].value
        for mark in (first, second):
            if mark is not None:
                self.nvml.nvmlGpmSampleFree(mark)
        return percent
