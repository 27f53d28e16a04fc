# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""In which order processes that are compared take turns, and what follows from their times. Touches no process and no clock."""

import math
import random
import statistics

RESAMPLED = 1000


def rounds(natives, ours):
    """Rounds of all, of which one follows the other: a native one in front of each of ours, each as often, and each of ours
    as often before as behind another one. Who was there before leaves caches behind, which a process finds warm when that was
    itself; and clocks and the machine's other users change meanwhile."""
    turned = ours[::-1]
    return [[who for i, one in enumerate(order) for who in (natives[(first + i) % 2], one)]
            for order, first in ((ours, 0), (turned, 1), (turned, 0), (ours, 1))]


def ratios(natives, other):
    """Per round how fast the other one was, in times of the natives: by logarithms, so that no round counts for more for
    having been slow. Each argument is seconds for the same work, by round."""
    return [statistics.fmean(math.log(n[r]) for n in natives) - math.log(other[r]) for r in range(len(other))]


def middle(values):
    """The mean of the middle half: a window in which the machine did something else says nothing."""
    ordered, cut = sorted(values), len(values) // 4
    return statistics.fmean(ordered[cut:len(ordered) - cut])


def estimate(sets):
    """Of the rounds' logarithms in each set: the speed in percent of native and its standard error. By drawing rounds again
    and, where there are several sets, by how these differ, since no two processes are quite alike."""
    sets = [rounds for rounds in sets if rounds]
    if not sets:
        return None
    middles, draw = [middle(rounds) for rounds in sets], random.Random(1)
    percent = 100 * math.exp(statistics.fmean(middles))
    by_rounds = statistics.stdev(statistics.fmean(middle(draw.choices(rounds, k=len(rounds))) for rounds in sets) for _ in range(RESAMPLED))
    by_sets = statistics.stdev(middles) / len(sets) ** 0.5 if len(sets) > 1 else 0
    return percent, percent * max(by_rounds, by_sets)
