/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * NVML as the nvidia-smi stand-in uses it: found by dlsym, and the lists of processes in a private
 * table without which it does not run, as the real one does it. */
#ifndef SIMGPU_SMI_H
#define SIMGPU_SMI_H

#define SMI_MAX_PROCS 500

typedef void *smi_device;

struct smi_memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

struct smi_utilization {
	unsigned gpu, memory;
};

/* As in the driver's private table, which is where the lists come from. */
struct smi_process {
	unsigned pid;
	unsigned long long used_bytes;
	unsigned gpu_instance, compute_instance;
	unsigned long long protected_bytes;
	char name[4096];
};

struct smi_sample {
	unsigned pid;
	unsigned long long at_us;
	unsigned sm, memory, encoder, decoder;
};

struct smi_pci {
	char legacy_id[16];
	unsigned domain, bus, device, ids, subsystem;
	char id[32];
};

struct smi_nvml {
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error_string)(int);
	int (*driver_version)(char *, unsigned);
	int (*cuda_version)(int *);
	int (*count)(unsigned *);
	int (*by_index)(unsigned, smi_device *);
	int (*name)(smi_device, char *, unsigned);
	int (*uuid)(smi_device, char *, unsigned);
	int (*pci)(smi_device, struct smi_pci *);
	int (*memory)(smi_device, struct smi_memory_v2 *);
	int (*utilization)(smi_device, struct smi_utilization *);
	int (*power)(smi_device, unsigned *);
	int (*temperature)(smi_device, int, unsigned *);
	int (*processes)(smi_device, unsigned *, struct smi_process *);
	int (*process_name)(unsigned, char *, unsigned);
	int (*samples)(smi_device, struct smi_sample *, unsigned *, unsigned long long);
	int (*export_table)(const void **, const void *);
};

/* One GPU as all the forms of output need it. */
struct smi_gpu {
	smi_device device;
	unsigned index;
	char name[96], uuid[80], bus_id[32];
	struct smi_memory_v2 memory;
	struct smi_utilization utilization;
	unsigned power_mw, temperature_c, process_count;
	struct smi_process process[SMI_MAX_PROCS];
};

/* Both print what went wrong and return an NVML code. */
int smi_load(struct smi_nvml *nvml);
int smi_lists(struct smi_nvml *nvml); /* after init: the private table */
int smi_read(const struct smi_nvml *nvml, unsigned index, struct smi_gpu *gpu);
void smi_process_name(const struct smi_nvml *nvml, unsigned pid, char *name, unsigned size);

#endif
