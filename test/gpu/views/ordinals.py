# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Which GPUs a program of a step counts, in which order, and which slice it is charged to: ../views.sh --ordinals.

Nothing masks a GPU here, as under preload isolation."""

import subprocess

WISHES = (None, "0", "1", "0,1", "1,0", "7", "")


def expected(wish, granted):
    if wish is None:
        return list(granted)
    found = []
    for entry in wish.split(","):
        if not entry.isdigit() or int(entry) >= len(granted):
            break
        found.append(granted[int(entry)])
    return found


def ask(g, step, uid, wish):
    options = g.as_user(step, uid)
    options["env"].pop("CUDA_VISIBLE_DEVICES", None)
    if wish is not None:
        options["env"]["CUDA_VISIBLE_DEVICES"] = wish
    out = subprocess.run([g.path("ordinals")], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options).stdout
    return {line.split()[0]: line.split()[1:] for line in out.splitlines()}


def run(g, uuids, uid):
    """Rows (granted, CUDA_VISIBLE_DEVICES, CUDA's order, NVML's order, peaks, verdict) for the steps that a node of two GPUs can have."""
    first, second = uuids[:2]
    name = {first: "A", second: "B"}
    rows = []
    for job, granted in enumerate(([second], [first], [second, first], [first, second]), 100):
        for n, wish in enumerate(WISHES):
            step = g.make_step(job * 10 + n, uid, g.o.mem, ",".join(granted))
            said, want = ask(g, step, uid, wish), expected(wish, granted)
            peaks = g.peaks_mib(step)[:len(granted)]
            faults = []
            if said.get("cuda") != want:
                faults.append(f"CUDA counts {said.get('cuda')}, not {want}")
            if said.get("nvml") != granted:
                faults.append(f"NVML counts {said.get('nvml')}, not {granted}")
            charged = [uuid for uuid, peak in zip(granted, peaks) if peak > 0]
            if charged != want[:1]:
                faults.append(f"charged to {charged}, not {want[:1]}")
            if want and said.get("alloc") != ["0"]:
                faults.append(f"the allocation failed: {said.get('alloc')}")
            letters = ["".join(name.get(u, "?") for u in said.get(kind, [])) or "-" for kind in ("cuda", "nvml")]
            rows.append(("".join(name[u] for u in granted), "unset" if wish is None else f"'{wish}'", *letters,
                         " ".join(f"{p:g}" for p in peaks), "; ".join(faults) or "ok"))
    return rows
