/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "route/loaded.h"

#include "base/sys.h"
#include "process/trust.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* A line of /proc/PID/maps: from-to, rights, offset, device, inode, path. */
struct line {
	char text[PATH_MAX + 128];
	size_t length;
};

struct mapped {
	char file[64]; /* device and inode, as they stand there */
	char path[PATH_MAX];
};

static const char *field(const char *at, unsigned int number)
{
	while (number-- > 0) {
		at += strcspn(at, " ");
		at += strspn(at, " ");
	}
	return at;
}

/* strtoull has another name in every newer C library. */
static uintptr_t hexadecimal(const char **at)
{
	static const char digits[] = "0123456789abcdef";
	const char *digit;
	uintptr_t n = 0;

	for (; **at != '\0' && (digit = strchr(digits, **at)) != NULL; (*at)++)
		n = n * 16 + (uintptr_t)(digit - digits);
	return n;
}

static bool read_line(const char *text, uintptr_t address, struct mapped *mapped)
{
	const char *at = text;
	uintptr_t from = hexadecimal(&at);
	uintptr_t to = *at == '-' ? (at++, hexadecimal(&at)) : 0;
	const char *device = field(text, 3), *path = field(text, 5);
	size_t length = (size_t)(field(text, 4) - device);

	if (address < from || address >= to)
		return false;
	length += strcspn(device + length, " ");
	if (path[0] != '/' || length >= sizeof(mapped->file) || strlen(path) >= sizeof(mapped->path))
		return false;
	memcpy(mapped->file, device, length);
	mapped->file[length] = '\0';
	strcpy(mapped->path, path);
	return true;
}

static bool mapped_at(const void *address, struct mapped *mapped)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	struct line line = {.length = 0};
	char piece[1024];
	bool found = false;
	ssize_t n;

	while (fd >= 0 && !found && (n = read(fd, piece, sizeof(piece))) > 0) {
		for (ssize_t i = 0; i < n && !found; i++) {
			if (piece[i] != '\n' && line.length < sizeof(line.text) - 1) {
				line.text[line.length++] = piece[i];
			} else if (piece[i] == '\n') {
				line.text[line.length] = '\0';
				line.length = 0;
				found = read_line(line.text, (uintptr_t)address, mapped);
			}
		}
	}
	if (fd >= 0)
		close(fd);
	return found;
}

/* By mapping what lies at that path now: the device that the kernel shows there is not always stat's (btrfs,
 * overlayfs). */
static bool is_file_at(int fd, const struct mapped *mapped)
{
	void *page = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
	struct mapped now;
	bool same;

	if (page == MAP_FAILED)
		return false;
	same = mapped_at(page, &now) && strcmp(now.file, mapped->file) == 0;
	munmap(page, 1);
	return same;
}

bool vgpu_loaded_from_roots_file(const void *address)
{
	struct mapped mapped;
	struct stat st;
	bool roots;
	int fd;

	if (!mapped_at(address, &mapped))
		return false;
	fd = open(mapped.path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return false;
	roots = vgpu_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && vgpu_trust_roots(fd, &st) &&
		is_file_at(fd, &mapped);
	close(fd);
	return roots;
}

bool vgpu_loaded_path(const void *address, char path[static PATH_MAX])
{
	struct mapped mapped;

	if (!mapped_at(address, &mapped))
		return false;
	strcpy(path, mapped.path);
	return true;
}
