# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the runs, what they mean, and the tables."""

import re
import signal
import statistics
import sys

MIB = 1 << 20
GRANULE = 2 * MIB  # what the driver takes at once
MANAGED_PART = 64 << 10  # the same of managed memory, in blocks of more than 1 MiB …
MANAGED_PIECE = 128 * MIB  # … and for all managed memory of a device together
FILL, MANAGED, HOST = 1, 2, 4  # as in paths/search.h
NAMES = ("path granule cap works fails error "
         "b_free b_total b_nvml_used b_nvml_total b_own b_real b_device "
         "p_free p_total p_nvml_used p_nvml_total p_own p_real p_device "
         "a_free a_total a_nvml_used a_nvml_total a_own a_real a_device tries flags note").split()


def stop_when_told():
    """Ends by SystemExit at SIGTERM, so that what was measured so far is still printed. timeout(1) sends it twice, to this
    process and to its group."""

    def stop(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(143)

    signal.signal(signal.SIGTERM, stop)


def mib(value):
    if value is None:
        return "-"
    text = f"{value / MIB:.2f}".rstrip("0").rstrip(".")
    return text


def round_up(value, to):
    return -(-value // to) * to


def managed_charge(size, count):
    """What so many managed blocks of one size take, each context sharing granules among small ones."""
    if size > MIB:
        return count * round_up(size, GRANULE if size % GRANULE > GRANULE // 2 else MANAGED_PART)
    return -(-count // (GRANULE // round_up(size, 512))) * GRANULE


def error_of_median(values):
    """The standard error of the median of what is distributed normally."""
    return 1.25 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def table(title, header, rows):
    print(f"\n{title}\n")
    width = [max(len(str(r[i])) for r in [header, *rows]) for i in range(len(header))]
    for r in [header, *rows]:
        cells = [str(c).ljust(w) if i == 0 or i == len(header) - 1 else str(c).rjust(w) for i, (c, w) in enumerate(zip(r, width))]
        print("  ".join(cells).rstrip())
        if r is header:
            print("  ".join("-" * w for w in width))
    print(flush=True)


def said_by_us(err):
    return next((line for line in err.splitlines() if line.startswith("vgpu: ")), "")


class PathRow:
    """One path under a limit in MiB, or without the interposer (None)."""

    def __init__(self, name, limit_mib, line, status, err, ledger):
        self.name, self.limit_mib, self.status, self.err, self.ledger = name, limit_mib, status, err, ledger
        self.raw = line
        values = (line or "").split("\t")
        for i, key in enumerate(NAMES):
            text = values[i] if i < len(values) else "-"
            number = text.lstrip("-").isdigit()
            setattr(self, key, text if key in ("path", "note") else int(text) if number else None)
        self.note = "" if self.note == "-" else self.note

    @property
    def limit(self):
        return None if self.limit_mib is None else self.limit_mib * MIB

    @property
    def managed(self):
        """What its managed memory must be charged at the largest."""
        if not self.flags or not self.flags & MANAGED or not self.works:
            return 0
        size = self.granule if self.flags & FILL else self.works
        return managed_charge(size, self.works // size)

    @property
    def held(self):
        """At the largest: by the driver's figure for the process, or with managed memory by that for the device."""
        return self.p_real if self.p_device is None or self.b_real is None else self.b_real + self.p_device

    def verdict(self):
        if self.raw is None:
            return f"BROKEN: status {self.status}, {(self.err.strip().splitlines() or ['no output'])[-1][:80]}"
        if self.works is None:
            return self.note if self.error == -1 else f"BROKEN: {self.note} (error {self.error})"
        words = []
        if self.flags & HOST:
            words.append("not charged, as it must be" if self.fails is None else f"HOST MEMORY REFUSED, error {self.error}")
        elif self.fails is None:
            words.append("NOT LIMITED")
        elif self.p_real is not None:
            words.append(self.distance(self.p_real + self.managed))
        elif self.p_own is not None:
            words.append(self.distance(self.p_own) + " by the account")
        else:
            words.append("refused")
        if self.fails is not None and self.error != 2:
            words.append(f"ERROR {self.error}")
        together = re.search(r"together at most ([0-9.]+) MiB", self.note)
        if together and self.limit_mib is not None and float(together[1]) > self.limit_mib:
            words.append(f"TOGETHER OVER by {float(together[1]) - self.limit_mib:g}")
        words += self.disagreements()
        if self.note:
            words.append(self.note)
        return "; ".join(words)

    def distance(self, held):
        left = self.limit - held
        if left < 0:
            return f"OVER by {mib(-left)}"
        # What the driver could still have taken: one step of the search, in what it takes at once.
        if self.flags & MANAGED:
            step = managed_charge(self.granule, 1)
        else:
            step = max(round_up(self.granule, GRANULE), GRANULE)
        return "exact" if left < step else f"ends {mib(left)} early"

    def disagreements(self):
        words = []
        if self.p_real is not None and self.p_own is not None:
            off = self.p_own - self.p_real - self.managed
            if abs(off) >= GRANULE or (off and self.managed):
                words.append(f"account {mib(off)} off at the largest")
        if self.managed and self.p_device is not None:
            words += self.of_the_device()
        if self.a_real is not None and self.a_own is not None and abs(self.a_real - self.a_own) >= GRANULE:
            words.append(f"account {mib(self.a_own - self.a_real)} off after it")
        return words

    def of_the_device(self):
        """The last piece that the driver takes for managed memory may be in use by less than all of it."""
        more = self.held - self.p_real - self.managed
        if more < 0:
            return [f"DEVICE {mib(-more)} LESS"]
        if more >= MANAGED_PIECE:
            return [f"DEVICE {mib(more)} MORE"]
        return [f"the device {mib(more)} more"] if more else []


def keep(path, lines):
    with open(path, "w") as to:
        to.write("\n".join(lines) + "\n")


def paths(rows, raw):
    keep(raw, ["limit MiB\t" + "\t".join(NAMES)] + [f"{r.limit_mib}\t{r.raw}" for r in rows if r.raw])
    table("Where each path ends under a limit (MiB; really held: the driver's figure for the process, of managed memory for the device)",
          ("path", "limit", "context", "works", "fails", "free then", "NVML used", "really held", "verdict"),
          [(r.name, r.limit_mib, mib(r.b_real if r.b_real is not None else r.b_own), mib(r.works), mib(r.fails), mib(r.p_free),
            mib(r.p_nvml_used), mib(r.held), r.verdict()) for r in rows])
    said = {said_by_us(r.err) for r in rows} - {""}
    for line in sorted(said)[:3]:
        print("said:", line)


def whole(pairs, raw):
    keep(raw, ["limit MiB\t" + "\t".join(NAMES)] + [f"{r.limit_mib}\t{r.raw}" for pair in pairs for r in pair if r.raw])
    rows = []
    for plain, ours in pairs:
        if plain.works is None or ours.works is None:
            verdict = f"without: {plain.verdict()}; with: {ours.verdict()}"
        else:
            off = ours.works - plain.works
            verdict = "the same" if off == 0 else f"{mib(off)} differs"
        rows.append((plain.name, mib(plain.b_total), mib(ours.b_total), mib(plain.works), mib(ours.works), mib(plain.p_real), mib(ours.p_real), verdict))
    table("A limit of the whole GPU, and no interposer (MiB)",
          ("path", "total without", "with", "works without", "with", "held without", "with", "verdict"), rows)


class FrameworkRow:
    """What one framework said; found has a list of fields per row, see frameworks/probe.py."""

    def __init__(self, label, limit_mib, found, status, err, ledger, peak):
        self.label, self.limit_mib, self.found, self.status, self.err, self.ledger = label, limit_mib, found, status, err, ledger
        self.peak = peak  # of all its processes together, by the driver

    def fields(self):
        keys = ("name", "total", "free", "nvml_used", "got", "error", "process", "session", "checksum", "note")
        if not self.found:
            return None
        out = dict(zip(keys, self.found[0]))
        for key in ("total", "free", "nvml_used", "got", "process", "session"):
            out[key] = int(out[key]) if out[key].isdigit() else None
        return out


def framework_verdict(ours, plain, limit_mib):
    words = []
    f, p = ours.fields(), plain.fields() if plain else None
    if f is None:
        last = (ours.err.strip().splitlines() or ["no output"])[-1]
        words.append(f"BROKEN (status {ours.status}): {last[:100]}")
        if plain and p is None:
            words.append("and without the interposer as well")
        return "; ".join(words)
    held = ours.peak
    if f["error"] == "-":
        words.append("NOT LIMITED")
    elif "managed" in f["name"]:
        words.append("the driver's figure leaves managed memory out")
        if ours.ledger:
            left = limit_mib * MIB - ours.ledger[2]
            words.append(f"OVER by {mib(-left)} by the account" if left < 0 else f"{mib(left)} left by the account")
    elif held is not None:
        left = limit_mib * MIB - held
        words.append(f"OVER by {mib(-left)}" if left < 0 else f"{mib(left)} left")
    if len(ours.found) > 1:
        words.append("WRONG AFTER THE ERROR")
    if plain is not None:
        if p is None:
            words.append("native run broke")
        elif p["checksum"] != f["checksum"] or p["note"] != f["note"]:
            words.append(f"RESULT DIFFERS ({p['checksum']} {p['note']})")
        else:
            words.append("same result")
    if ours.status != 0:
        words.append(f"exit status {ours.status}")
    if f["note"] not in ("-", ""):
        words.append(f["note"])
    return "; ".join(words)


def frameworks(pairs, raw):
    keep(raw, ["\t".join([str(r.limit_mib), *line]) for pair in pairs for r in pair if r for line in r.found])
    rows = []
    for ours, plain in pairs:
        f = ours.fields() or dict.fromkeys(("total", "free", "nvml_used", "got", "process"), None) | {"name": ours.label, "error": "-"}
        peak = ours.ledger[2] if ours.ledger else None
        rows.append((f["name"], ours.limit_mib, mib(f["total"]), mib(f["free"]), mib(f["got"]), mib(f["nvml_used"]), mib(ours.peak), mib(peak),
                     f["error"], framework_verdict(ours, plain, ours.limit_mib)))
    table("Frameworks under a limit (MiB)",
          ("framework", "limit", "total", "free", "got", "NVML used", "really at most", "account at most", "its error", "verdict"), rows)
