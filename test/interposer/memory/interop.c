/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other interfaces is charged by what the driver reports of the process. */
#include "harness.h"

#include <fcntl.h>

CUresult cuSimOutside(CUdevice device, size_t bytes, int *fd);
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory memory,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer);

static struct step step;

/* The account, which is what the driver holds. */
static uint64_t used(void)
{
	CHECK_IS(step_slots_bytes(&step), step.ledger->used_bytes[0]);
	CHECK_IS(driver_used_bytes(0), step.ledger->used_bytes[0]);
	return step.ledger->used_bytes[0];
}

static void begin(void)
{
	gpus(100);
	step = step_make(100 + (uint32_t)getpid(), 0, 200, 200);
	cuda_begin(0);
	CHECK_IS(used(), 100 * MIB);
}

static CUDA_EXTERNAL_MEMORY_HANDLE_DESC made_outside(size_t mib)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						   .size = mib * MIB};

	CHECK_IS(cuSimOutside(0, mib * MIB, &handle.handle.fd), CUDA_SUCCESS);
	return handle;
}

static void an_import_of_this_process_is_charged_once(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC outside;
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.size = 60 * MIB};
	CUexternalMemory memory;
	CUdeviceptr a, b;

	begin();
	outside = made_outside(60);
	CHECK_IS(cuImportExternalMemory(&memory, &outside), CUDA_SUCCESS);
	CHECK_IS(used(), 160 * MIB);
	/* Mapped twice, and freed like memory that was allocated. */
	CHECK_IS(cuExternalMemoryGetMappedBuffer(&a, memory, &buffer), CUDA_SUCCESS);
	CHECK_IS(cuExternalMemoryGetMappedBuffer(&b, memory, &buffer), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(), 160 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 42 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, 40 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuDestroyExternalMemory(memory), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK(cuDestroyExternalMemory(memory) != CUDA_SUCCESS);
	CHECK(cuImportExternalMemory(&memory, NULL) != CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
}

static void an_import_that_does_not_fit_leaves_the_descriptor(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC outside, more;
	CUexternalMemory memory;
	CUdeviceptr a;

	begin();
	outside = made_outside(60);
	CHECK_IS(cuImportExternalMemory(&memory, &outside), CUDA_SUCCESS);
	more = made_outside(60);
	stderr_catch();
	CHECK_IS(cuImportExternalMemory(&memory, &more), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(strstr(stderr_caught(), "60 MiB asked for, 160 of 200 MiB in use by this step") != NULL);
	CHECK(fcntl(more.handle.fd, F_GETFD) >= 0);
	CHECK_IS(step.ledger->used_bytes[0], 160 * MIB);
	/* It is there all the same, and nothing more is to be had. */
	CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

/* The other process imports what is behind descriptor 77. */
static int import(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC outside = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						    .handle.fd = 77};
	size_t free_bytes, total_bytes;
	CUexternalMemory memory;

	cuda_begin(0);
	CHECK_IS(cuImportExternalMemory(&memory, &outside), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 40 * MIB);
	CHECK_IS(cuDestroyExternalMemory(memory), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 40 * MIB);
	return failures;
}

static void an_import_from_another_process_is_charged_to_that(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC outside;
	CUexternalMemory memory;

	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, 100, 100);
	cuda_begin(0);
	outside = made_outside(60);
	CHECK_IS(dup2(outside.handle.fd, 77), 77);
	CHECK_IS(cuImportExternalMemory(&memory, &outside), CUDA_SUCCESS);
	CHECK_IS(run_self("import"), 0);
	CHECK_IS(used(), 60 * MIB);
}

static void resources_of_graphics_are_charged_and_refused(void)
{
	CUgraphicsResource r;

	begin();
#define CHECK_REGISTER(call, undo)                       \
	do {                                             \
		CHECK_IS(call(64), CUDA_SUCCESS);        \
		CHECK_IS(used(), 164 * MIB);             \
		CHECK_IS(undo(64), CUDA_SUCCESS);        \
		CHECK_IS(used(), 100 * MIB);             \
		CHECK_IS(call(128), CUDA_ERROR_OUT_OF_MEMORY); \
		CHECK_IS(used(), 100 * MIB);             \
	} while (0)
#define GL_BUFFER(mib) cuGraphicsGLRegisterBuffer(&r, mib, 0)
#define GL_IMAGE(mib) cuGraphicsGLRegisterImage(&r, mib, 0, 0)
#define EGL_IMAGE(mib) cuGraphicsEGLRegisterImage(&r, (void *)mib, 0)
#define VDPAU_VIDEO(mib) cuGraphicsVDPAURegisterVideoSurface(&r, mib, 0)
#define VDPAU_OUTPUT(mib) cuGraphicsVDPAURegisterOutputSurface(&r, mib, 0)
#define GL_OLD(mib) cuGLRegisterBufferObject(mib)
#define GL_OLD_UNDO(mib) cuGLUnregisterBufferObject(mib)
#define UNREGISTER(mib) cuGraphicsUnregisterResource(r)
	CHECK_REGISTER(GL_BUFFER, UNREGISTER);
	CHECK_REGISTER(GL_IMAGE, UNREGISTER);
	CHECK_REGISTER(EGL_IMAGE, UNREGISTER);
	CHECK_REGISTER(VDPAU_VIDEO, UNREGISTER);
	CHECK_REGISTER(VDPAU_OUTPUT, UNREGISTER);
	CHECK_REGISTER(GL_OLD, GL_OLD_UNDO);
	CHECK_IS(step.ledger->refusals[0], 6);
	CHECK(cuGraphicsGLRegisterBuffer(&r, 0, 0) != CUDA_SUCCESS);
	CHECK(cuGraphicsUnregisterResource(NULL) != CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "import") == 0)
		return import();
	gpus(0);
	CASE(an_import_of_this_process_is_charged_once);
	CASE(an_import_that_does_not_fit_leaves_the_descriptor);
	CASE(an_import_from_another_process_is_charged_to_that);
	CASE(resources_of_graphics_are_charged_and_refused);
	return summary();
}
