/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Starts a program as a shell would not, for scope.sh:
 *   started full PRELOAD PROGRAM [ARGUMENT…]           with an environment into which not one more word fits
 *   started twice PRELOAD PRELOAD PROGRAM [ARGUMENT…]  with LD_PRELOAD twice
 *   started many PRELOAD PROGRAM [ARGUMENT…]           with LD_PRELOAD thousands of times, of which the last
 * counts */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE_BYTES 100000u /* the kernel's limit for one string is 128 KiB */
#define MOST_PIECES 100u
#define MANY 12000u

extern char **environ;

static char *preload(const char *list)
{
	char *entry = NULL;

	if (asprintf(&entry, "LD_PRELOAD=%s", list) < 0)
		exit(99);
	return entry;
}

/* Others, and this. */
static char **many_times(char *last)
{
	char **list = calloc(MANY + 1, sizeof(*list));

	if (list == NULL)
		exit(99);
	for (size_t i = 0; i + 1 < MANY; i++)
		list[i] = preload("x");
	list[MANY - 1] = last;
	return list;
}

/* The environment, with entries in front of it and so many bytes behind. */
static char **filled(char *const *first, size_t bytes)
{
	size_t count = 0, made = 0, front = 0;
	char **envp;

	while (environ[count] != NULL)
		count++;
	while (first[front] != NULL)
		front++;
	envp = calloc(count + front + MOST_PIECES + 1, sizeof(*envp));
	if (envp == NULL)
		exit(99);
	while (*first != NULL)
		envp[made++] = *first++;
	for (size_t i = 0; i < count; i++)
		envp[made++] = environ[i];
	while (bytes > 1) {
		size_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
		char *text = malloc(piece);

		if (text == NULL)
			exit(99);
		memset(text, 'F', piece - 1);
		text[piece - 1] = '\0';
		envp[made++] = text;
		bytes -= piece;
	}
	return envp;
}

static bool fits(char **argv, char **envp)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 1);
		dup2(null, 2);
		execve(argv[0], argv, envp);
		_exit(errno == E2BIG ? 98 : 99);
	}
	waitpid(pid, &status, 0);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 98;
}

int main(int argc, char **argv)
{
	bool full = argc > 3 && strcmp(argv[1], "full") == 0, many = argc > 3 && strcmp(argv[1], "many") == 0;
	char *few[3] = {NULL}, **first = few;
	size_t fitting = 0, too_many = PIECE_BYTES * MOST_PIECES;

	if (!full && !many && (argc < 5 || strcmp(argv[1], "twice") != 0))
		return 2;
	unsetenv("LD_PRELOAD");
	first[0] = preload(argv[2]);
	if (many)
		first = many_times(first[0]);
	else if (!full)
		first[1] = preload(argv[3]);
	argv += full || many ? 3 : 4;
	while (full && too_many - fitting > 1) {
		size_t middle = fitting + (too_many - fitting) / 2;

		if (fits(argv, filled(first, middle)))
			fitting = middle;
		else
			too_many = middle;
	}
	execve(argv[0], argv, filled(first, fitting));
	return 99;
}
