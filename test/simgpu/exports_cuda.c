/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The exported functions, and what cuGetProcAddress knows of them. A row of the tables without
 * its sim_ function does not link. */
#include "drv.h"

#include <string.h>

#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	__attribute__((visibility("default"))) CUresult symbol params    \
	{                                                                \
		return sim_##symbol args;                                \
	}
#include "api/cuda.def"
#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	__attribute__((visibility("default"))) CUresult symbol params    \
	{                                                                \
		return sim_##symbol args;                                \
	}
#include "extra.def"

enum variant { LEGACY, PTSZ, PTDS };

static const struct row {
	const char *base;
	int since;
	enum variant variant;
	void *symbol;
} rows[] = {
#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	{ #base, since, variant, (void *)symbol },
#include "api/cuda.def"
#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	{ #base, since, variant, (void *)symbol },
#include "extra.def"
};

/* One function under two names, as cuda.h of 12.0 has it. */
static const struct row renamed[] = {
	{ "cuGraphInstantiate", 12000, LEGACY, (void *)cuGraphInstantiateWithFlags },
};

/* A per-thread form goes before any other, then the newest. */
static int rank(const struct row *row)
{
	return row->since + (row->variant != LEGACY ? 1000000 : 0);
}

/* The newest symbol of that base that is not newer than asked for; with the per-thread flag its
 * per-thread form where there is one. */
static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *status)
{
	const struct row *best = NULL;
	bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, known = false;

	if (name == NULL || function == NULL || name[0] == '\0' ||
	    flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];

		if (strcmp(row->base, name) != 0)
			continue;
		known = true;
		if (row->since > version || row->since > sim_conf.cuda_version ||
		    (row->variant != LEGACY && !per_thread))
			continue;
		if (best == NULL || rank(row) > rank(best))
			best = row;
	}
	for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
		if (best != NULL && strcmp(renamed[i].base, name) == 0 && renamed[i].since <= version &&
		    renamed[i].since <= sim_conf.cuda_version && rank(&renamed[i]) > rank(best))
			best = &renamed[i];
	*function = best != NULL ? best->symbol : NULL;
	if (status != NULL)
		*status = best != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return best != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
				 CUdriverProcAddressQueryResult *status)
{
	if (sim_attach() != 0) /* the configuration says which version this driver is */
		return CUDA_ERROR_UNKNOWN;
	return look_up(name, function, version, flags, status);
}

CUresult sim_cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	return sim_cuGetProcAddress_v2(name, function, version, flags, NULL);
}
