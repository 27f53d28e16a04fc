# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""costs.py WHAT FOLDER NATIVE OTHER...: what others take beyond the native one of the same round.

FOLDER/WHAT.NAME has a figure for each round. The standard error is a median's, its spread being told by the middle half.
"""

import statistics
import sys

what, folder, *names = sys.argv[1:]
unit = "ns" if what == "launch" else "us"


def rounds(name):
    with open(f"{folder}/{what}.{name}") as lines:
        return [float(line) for line in lines]


native = rounds(names[0])
print(f"{what:8}  {names[0]:16}  {statistics.median(native):8.1f} {unit}  of {len(native)} rounds")
for name in names[1:]:
    more = [ours - theirs for ours, theirs in zip(rounds(name), native, strict=True)]
    low, middle, high = statistics.quantiles(more, n=4)
    error = 1.253 * (high - low) / 1.349 / len(more) ** 0.5
    print(f"{'':8}  {name:16}  {middle:+8.1f} {unit}  +- {error:.1f}")
