# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What every framework is asked: what it sees, how much it gets, and whether it computes right."""

import os
import struct
import sys
import time

MIB = 1 << 20
UNKNOWN = (1 << 64) - 1


def witnessed():
    """Bytes that the driver really holds for this process, and for all of them together."""
    fd = os.environ.get("VGPU_WITNESS_FD")
    if fd is None:
        return None, None
    try:
        os.write(int(fd), struct.pack("i", os.getpid()))
        process, session, _, _ = struct.unpack("4Q", os.read(int(fd), 32))
    except OSError:
        time.sleep(0.1)  # a spawned process cannot ask, but the witness also looks by itself
        return None, None
    return (None if n == UNKNOWN else n for n in (process, session))


def nvml_memory():
    """Used and total as NVML says to this process."""
    try:
        import pynvml

        pynvml.nvmlInit()
        memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
        return memory.used, memory.total
    except Exception:  # NVML is only looked at: whatever it lacks must not end the test
        return None, None


def fill(allocate, is_out_of_memory, upto_mib):
    """Takes blocks of 64 MiB, then of 2, until the framework says no. What it got, and how it said no."""
    blocks, got, error = [], 0, None
    for size in (64 * MIB, 2 * MIB):
        while got + size <= upto_mib * MIB:
            try:
                blocks.append(allocate(size))
            except Exception as e:  # each framework has a class of its own
                error = e.with_traceback(None)  # its frames would keep the blocks, and so would its cause's
                error.__context__ = error.__cause__ = None
                break
            got += size
        if error is not None and not is_out_of_memory(error):
            break
    return blocks, got, error


def row(name, total, free, got, error, checksum, note=""):
    process, session = witnessed()
    used, _ = nvml_memory()
    kind = "-" if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    fields = [name, total, free, used, got, kind, process, session, checksum, note]
    sys.stdout.write("ROW\t" + "\t".join("-" if f is None else str(f).replace("\t", " ") for f in fields) + "\n")
    sys.stdout.flush()
