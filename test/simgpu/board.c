/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "board.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { READY = 0, GO = 1, STOP = 2, KERNEL_MS = 3, LOOPS = 4, DONE = 8, REQUESTS = 24, PID = 26 };
#define BOARD_BYTES (1u << 20)
#define LATENCIES_AT 4096
#define MOST_LATENCIES 200000

int board_open(struct board *board, const char *path, double kernel_ms)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *mapped =
		fd < 0 ? MAP_FAILED : mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	if (mapped == MAP_FAILED) {
		fprintf(stderr, "vgpu-busy: %s is no board\n", path);
		return -1;
	}
	board->words = mapped;
	memcpy((char *)mapped + KERNEL_MS * sizeof(uint64_t), &kernel_ms, sizeof(kernel_ms));
	board->words[LOOPS] = 1;
	board->words[PID] = (uint64_t)getpid();
	board->words[READY] = 1;
	return 0;
}

int board_waits(const struct board *board)
{
	return board->words != NULL && !board->words[GO] && !board->words[STOP];
}

int board_stops(const struct board *board)
{
	return board->words != NULL && board->words[STOP] != 0;
}

void board_count(struct board *board, uint64_t done, uint64_t took_ns)
{
	float *latencies;

	if (board->words == NULL)
		return;
	if (took_ns != 0) {
		latencies = (float *)((char *)(uintptr_t)board->words + LATENCIES_AT);
		latencies[(done - 1) % MOST_LATENCIES] = (float)((double)took_ns / 1e6);
		board->words[REQUESTS] = done;
	}
	board->words[DONE] = done;
}
