/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for nvidia-smi on a simulated node: the table, -L and the queries people script. */
#define _GNU_SOURCE
#include "smi.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1ull << 20)

struct format {
	bool header, units;
};

static struct smi_nvml nvml;
static struct smi_gpu gpu;
static char driver[96];
static unsigned count;
static int wanted = -1; /* -i N */
static bool pmon;

static int usage(FILE *to, int status)
{
	fprintf(to, "usage: nvidia-smi [-L] [-i INDEX]\n"
		    "       nvidia-smi pmon [-c 1] [-i INDEX]\n"
		    "       nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits]\n"
		    "       nvidia-smi --query-compute-apps=FIELD,... --format=csv[,noheader][,nounits]\n");
	return status;
}

static bool skipped(unsigned index)
{
	return wanted >= 0 && index != (unsigned)wanted;
}

static int list(void)
{
	for (unsigned i = 0; i < count; i++) {
		int rc = skipped(i) ? 0 : smi_read(&nvml, i, &gpu);

		if (rc != 0)
			return rc;
		if (!skipped(i))
			printf("GPU %u: %s (UUID: %s)\n", i, gpu.name, gpu.uuid);
	}
	return 0;
}

static const char rule[] =
	"+-----------------------------------------------------------------------------------------+\n";

static int table(void)
{
	int cuda = 0, rc;
	bool any = false;
	time_t now = time(NULL);
	char date[40];

	strftime(date, sizeof(date), "%a %b %e %H:%M:%S %Y", localtime(&now));
	nvml.cuda_version(&cuda);
	printf("%s\n%s", date, rule);
	printf("| NVIDIA-SMI (simulated)     Driver Version: %-18s CUDA Version: %2d.%-8d |\n%s", driver,
	       cuda / 1000, cuda % 1000 / 10, rule);
	printf("| GPU  %-26s %-17s %24s %5s %6s |\n", "Name", "Bus-Id", "Memory-Usage", "Temp",
	       "Util");
	for (unsigned i = 0; i < count; i++) {
		char memory[40];

		if (skipped(i))
			continue;
		if ((rc = smi_read(&nvml, i, &gpu)) != 0)
			return rc;
		snprintf(memory, sizeof(memory), "%lluMiB / %lluMiB", gpu.memory.used / MIB,
			 gpu.memory.total / MIB);
		printf("| %3u  %-26.26s %-17s %24s %4uC %5u%% |\n", i, gpu.name, gpu.bus_id, memory,
		       gpu.temperature_c, gpu.utilization.gpu);
	}
	printf("%s| Processes: %76s |\n| %5s %10s  %-50s %18s |\n", rule, "", "GPU", "PID",
	       "Process name", "GPU Memory");
	for (unsigned i = 0; i < count; i++) {
		if (skipped(i))
			continue;
		if ((rc = smi_read(&nvml, i, &gpu)) != 0)
			return rc;
		for (unsigned p = 0; p < gpu.process_count; p++) {
			char name[256];

			smi_process_name(&nvml, gpu.process[p].pid, name, sizeof(name));
			printf("| %5u %10u  %-50.50s %15lluMiB |\n", i, gpu.process[p].pid, name,
			       gpu.process[p].used_bytes / MIB);
			any = true;
		}
	}
	if (!any)
		printf("|  %-86s |\n", "No running processes found");
	printf("%s", rule);
	return 0;
}

/* Prints a number with its unit, as the format asks. */
static void amount(const struct format *format, unsigned long long value, const char *unit)
{
	printf(format->units ? "%llu %s" : "%llu", value, unit);
}

static bool gpu_field(const struct format *format, const char *field)
{
	if (strcmp(field, "index") == 0)
		printf("%u", gpu.index);
	else if (strcmp(field, "count") == 0)
		printf("%u", count);
	else if (strcmp(field, "uuid") == 0 || strcmp(field, "gpu_uuid") == 0)
		printf("%s", gpu.uuid);
	else if (strcmp(field, "name") == 0 || strcmp(field, "gpu_name") == 0)
		printf("%s", gpu.name);
	else if (strcmp(field, "pci.bus_id") == 0 || strcmp(field, "gpu_bus_id") == 0)
		printf("%s", gpu.bus_id);
	else if (strcmp(field, "driver_version") == 0)
		printf("%s", driver);
	else if (strcmp(field, "memory.total") == 0)
		amount(format, gpu.memory.total / MIB, "MiB");
	else if (strcmp(field, "memory.used") == 0)
		amount(format, gpu.memory.used / MIB, "MiB");
	else if (strcmp(field, "memory.free") == 0)
		amount(format, gpu.memory.free / MIB, "MiB");
	else if (strcmp(field, "memory.reserved") == 0)
		amount(format, gpu.memory.reserved / MIB, "MiB");
	else if (strcmp(field, "utilization.gpu") == 0)
		amount(format, gpu.utilization.gpu, "%");
	else if (strcmp(field, "temperature.gpu") == 0)
		printf("%u", gpu.temperature_c);
	else
		return false;
	return true;
}

static bool app_field(const struct format *format, const char *field, unsigned p)
{
	char name[256];

	if (strcmp(field, "pid") == 0)
		printf("%u", gpu.process[p].pid);
	else if (strcmp(field, "used_memory") == 0 || strcmp(field, "used_gpu_memory") == 0)
		amount(format, gpu.process[p].used_bytes / MIB, "MiB");
	else if (strcmp(field, "name") == 0 || strcmp(field, "process_name") == 0) {
		smi_process_name(&nvml, gpu.process[p].pid, name, sizeof(name));
		printf("%s", name);
	} else
		return gpu_field(format, field);
	return true;
}

static const char *unit_of(const char *field)
{
	if (strncmp(field, "memory.", 7) == 0 || strncmp(field, "used_", 5) == 0)
		return " [MiB]";
	return strncmp(field, "utilization.", 12) == 0 ? " [%]" : "";
}

/* Prints one line; row < 0 is the header, app < 0 a GPU's line. */
static int line(const struct format *format, const char *fields, bool header, int app)
{
	char copy[512], *rest = copy, *field;
	const char *between = "";

	snprintf(copy, sizeof(copy), "%s", fields);
	while ((field = strsep(&rest, ",")) != NULL) {
		field += strspn(field, " ");
		printf("%s", between);
		if (header)
			printf("%s%s", field, format->units ? unit_of(field) : "");
		else if (!(app < 0 ? gpu_field(format, field)
				   : app_field(format, field, (unsigned)app))) {
			fflush(stdout);
			fprintf(stderr, "Field \"%s\" is not a valid field to query.\n", field);
			return 2;
		}
		between = ", ";
	}
	printf("\n");
	return 0;
}

static int query(const struct format *format, const char *fields, bool apps)
{
	int rc = format->header ? line(format, fields, true, -1) : 0;

	for (unsigned i = 0; i < count && rc == 0; i++) {
		if (skipped(i))
			continue;
		rc = smi_read(&nvml, i, &gpu);
		if (rc == 0 && !apps)
			rc = line(format, fields, false, -1);
		for (unsigned p = 0; apps && rc == 0 && p < gpu.process_count; p++)
			rc = line(format, fields, false, (int)p);
	}
	return rc;
}

/* pmon: one line for each process, with its share of the last second. */
static int monitor(void)
{
	static struct smi_sample sample[SMI_MAX_PROCS];
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	printf("# gpu         pid   type     sm    command\n# Idx           #    C/G      %%    name\n");
	for (unsigned i = 0; i < count; i++) {
		unsigned samples = SMI_MAX_PROCS;
		int rc = skipped(i) ? 0 : smi_read(&nvml, i, &gpu);

		if (rc != 0)
			return rc;
		if (skipped(i))
			continue;
		if (nvml.samples(gpu.device, sample, &samples,
				 (unsigned long long)(now.tv_sec - 1) * 1000000) != 0)
			samples = 0;
		for (unsigned p = 0; p < gpu.process_count; p++) {
			char name[256], sm[16] = "-";

			for (unsigned s = 0; s < samples; s++)
				if (sample[s].pid == gpu.process[p].pid)
					snprintf(sm, sizeof(sm), "%u", sample[s].sm);
			smi_process_name(&nvml, gpu.process[p].pid, name, sizeof(name));
			printf("%5u %10u      C %6s    %s\n", i, gpu.process[p].pid, sm, name);
		}
		if (gpu.process_count == 0)
			printf("%5u          -      -      -    -\n", i);
	}
	return 0;
}

static bool parse_format(const char *text, struct format *format)
{
	char copy[64], *rest = copy, *word;
	bool csv = false;

	snprintf(copy, sizeof(copy), "%s", text);
	while ((word = strsep(&rest, ",")) != NULL) {
		if (strcmp(word, "csv") == 0)
			csv = true;
		else if (strcmp(word, "noheader") == 0)
			format->header = false;
		else if (strcmp(word, "nounits") == 0)
			format->units = false;
		else
			return false;
	}
	return csv;
}

static int report(bool names, const struct format *format, const char *gpus, const char *apps)
{
	int rc = nvml.init();

	if (rc != 0) {
		printf("Failed to initialize NVML: %s\n", nvml.error_string(rc));
		return rc;
	}
	rc = smi_lists(&nvml);
	if (rc == 0)
		rc = nvml.driver_version(driver, sizeof(driver));
	if (rc == 0)
		rc = nvml.count(&count);
	if (rc == 0 && count == 0) {
		printf("No devices were found\n");
		rc = 6;
	} else if (rc == 0 && wanted >= (int)count) {
		printf("No devices were found\n");
		rc = 6;
	}
	if (rc == 0)
		rc = names	    ? list()
		     : pmon	    ? monitor()
		     : gpus != NULL ? query(format, gpus, false)
		     : apps != NULL ? query(format, apps, true)
				    : table();
	nvml.shutdown();
	return rc;
}

int main(int argc, char **argv)
{
	struct format format = { .header = true, .units = true };
	const char *gpus = NULL, *apps = NULL, *form = NULL;
	bool names = false;
	int rc;

	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i];

		if (strcmp(arg, "-L") == 0 || strcmp(arg, "--list-gpus") == 0)
			names = true;
		else if (i == 1 && strcmp(arg, "pmon") == 0)
			pmon = true;
		else if (pmon && strcmp(arg, "-c") == 0 && i + 1 < argc)
			i++; /* once in any case */
		else if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0)
			return usage(stdout, 0);
		else if (strcmp(arg, "-i") == 0 && i + 1 < argc)
			wanted = atoi(argv[++i]);
		else if (strncmp(arg, "--id=", 5) == 0)
			wanted = atoi(arg + 5);
		else if (strncmp(arg, "--query-gpu=", 12) == 0)
			gpus = arg + 12;
		else if (strncmp(arg, "--query-compute-apps=", 21) == 0)
			apps = arg + 21;
		else if (strncmp(arg, "--format=", 9) == 0)
			form = arg + 9;
		else
			return usage(stderr, 2);
	}
	if ((gpus != NULL || apps != NULL) && (form == NULL || !parse_format(form, &format)))
		return usage(stderr, 2);
	rc = smi_load(&nvml);
	return rc != 0 ? rc : report(names, &format, gpus, apps);
}
