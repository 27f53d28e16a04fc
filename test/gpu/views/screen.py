# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a program that draws on a terminal, and says what is on its screen."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

ROWS, COLUMNS = 40, 160
# What a vt100 or an xterm is sent: CSI sequences, other escapes, and plain characters.
TOKEN = re.compile(r"\x1b\[([?0-9;]*)([@-~])|\x1b[()].|\x1b[^\[]|[\x00-\x1f]|[^\x00-\x1f\x1b]+")


class Screen:
    """As much of a terminal as a full-screen program needs."""

    def __init__(self):
        self.cells = [[" "] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0

    def feed(self, text):
        for token in TOKEN.finditer(text):
            word = token.group(0)
            if token.group(2):
                self.control(token.group(2), [int(n) if n else 0 for n in token.group(1).lstrip("?").split(";")])
            elif word == "\r":
                self.column = 0
            elif word == "\n":
                self.row = min(self.row + 1, ROWS - 1)
            elif word == "\b":
                self.column = max(self.column - 1, 0)
            elif word[0] >= " ":
                self.put(word)

    def put(self, text):
        for character in text:
            if self.column < COLUMNS:
                self.cells[self.row][self.column] = character
                self.column += 1

    def control(self, kind, numbers):
        n = numbers[0]
        if kind in "Hf":
            self.row = min(max(n - 1, 0), ROWS - 1)
            self.column = min(max((numbers[1] if len(numbers) > 1 else 1) - 1, 0), COLUMNS - 1)
        elif kind == "d":
            self.row = min(max(n - 1, 0), ROWS - 1)
        elif kind == "G":
            self.column = min(max(n - 1, 0), COLUMNS - 1)
        elif kind in "ABCD":
            down, right = {"A": (-1, 0), "B": (1, 0), "C": (0, 1), "D": (0, -1)}[kind]
            self.row = min(max(self.row + down * max(n, 1), 0), ROWS - 1)
            self.column = min(max(self.column + right * max(n, 1), 0), COLUMNS - 1)
        elif kind == "J":
            self.blank(self.row if n == 0 else 0, ROWS if n != 1 else self.row + 1)
        elif kind == "K":
            start, end = (self.column, COLUMNS) if n == 0 else (0, self.column + 1) if n == 1 else (0, COLUMNS)
            self.cells[self.row][start:end] = [" "] * (end - start)
        elif kind == "X":
            end = min(self.column + max(n, 1), COLUMNS)
            self.cells[self.row][self.column:end] = [" "] * (end - self.column)
        elif kind == "b" and self.column > 0:
            self.put(self.cells[self.row][self.column - 1] * max(n, 1))

    def blank(self, first, end):
        for row in range(first, end):
            self.cells[row][:] = [" "] * COLUMNS

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells).rstrip() + "\n"


def run(command, seconds, key="q", **options):
    """What the screen shows after so many seconds, before the program is sent the key that ends it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    p = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, **options)
    os.close(slave)
    data, end = b"", time.monotonic() + seconds
    try:
        while p.poll() is None and time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                data += os.read(master, 1 << 16)
    except OSError:
        pass  # the program has ended
    screen = Screen()
    screen.feed(data.decode(errors="replace"))
    if p.poll() is None:
        os.write(master, key.encode())
        try:
            p.wait(3)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
    os.close(master)
    return screen.text()
