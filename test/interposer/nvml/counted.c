/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Utilisation that vgpud has counted. */
#include "pages.h"

static struct step step;

static unsigned utilisation(void)
{
	nvmlUtilization_t rates = {0};
	nvmlDevice_t device = NULL;

	CHECK_IS(nvmlDeviceGetHandleByUUID(UUID0, &device), NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetUtilizationRates(device, &rates), NVML_SUCCESS);
	return rates.gpu;
}

/* As vgpud does. */
static void count_outside(struct vgpu_time *page, uint32_t percent, uint64_t looked_ns)
{
	page->sequence |= 1;
	page->device[0] = (struct vgpu_time_device){.looked_ns = looked_ns, .percent = percent};
	page->sequence++;
}

static void what_was_counted_outside_is_shown(void)
{
	struct vgpu_time *page;
	char path[600];

	gpus(0);
	step = step_with_pages();
	snprintf(path, sizeof(path), "%s/" VGPU_TIME_FILE, step.limits->pages_dir);
	page = page_map(path, sizeof(*page));
	*page = (struct vgpu_time){.magic = VGPU_TIME_MAGIC,
				   .layout_version = VGPU_VGPUD_VERSION,
				   .size_bytes = sizeof(*page),
				   .job_id = step.limits->job_id,
				   .device_count = 1};
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_IS(utilisation(), 0);
	count_outside(page, 3651, now_ns());
	CHECK_IS(utilisation(), 37);
	count_outside(page, 12000, now_ns());
	CHECK_IS(utilisation(), 100);
	/* It is dead, or hangs. */
	count_outside(page, 3651, now_ns() - 3000000000u);
	CHECK_IS(utilisation(), 0);
	count_outside(page, 3651, now_ns() + 60000000000u);
	CHECK_IS(utilisation(), 0);
	count_outside(page, 3651, now_ns());
	page->device[0].flags = VGPU_TIME_UNCOUNTED;
	CHECK_IS(utilisation(), 0);
	page->device[0].flags = 0;
	page->sequence++; /* half written */
	CHECK_IS(utilisation(), 0);
	page->sequence++;
	page->job_id++;
	CHECK_IS(utilisation(), 0);
	page->job_id--;
	CHECK_IS(chmod(path, 0666), 0);
	CHECK_IS(utilisation(), 0);
	CHECK_IS(chmod(path, 0644), 0);
	if (geteuid() == 0) {
		CHECK_IS(chown(path, 65534, 65534), 0);
		CHECK_IS(utilisation(), 0);
		CHECK_IS(chown(path, 0, 0), 0);
	}
	CHECK_IS(utilisation(), 37);
	page->size_bytes = 2000; /* a prolog of a later build made it, which knows more */
	CHECK_IS(truncate(path, 2000), 0);
	CHECK_IS(utilisation(), 37);
	CHECK_IS(truncate(path, VGPU_TIME_LEAST - 1), 0);
	CHECK_IS(utilisation(), 0);
	CHECK_IS(truncate(path, 0), 0); /* the job has ended */
	CHECK_IS(utilisation(), 0);
}

int main(void)
{
	CASE(what_was_counted_outside_is_shown);
	return summary();
}
