/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * opengl.c: how much of the GPU's memory a program gets by OpenGL without a screen (EGL): opengl MIB
 * prints "N MiB", or what failed. */
#define GL_GLEXT_PROTOTYPES
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>
#include <string.h>

#include "other.h"

static EGLDisplay display_of_nvidia(void)
{
	PFNEGLQUERYDEVICESEXTPROC query = (PFNEGLQUERYDEVICESEXTPROC)eglGetProcAddress("eglQueryDevicesEXT");
	PFNEGLGETPLATFORMDISPLAYEXTPROC display =
		(PFNEGLGETPLATFORMDISPLAYEXTPROC)eglGetProcAddress("eglGetPlatformDisplayEXT");
	EGLDeviceEXT devices[8];
	EGLint count = 0;

	if (query == NULL || display == NULL || !query(8, devices, &count))
		return EGL_NO_DISPLAY;
	for (EGLint i = 0; i < count; i++) {
		EGLDisplay found = display(EGL_PLATFORM_DEVICE_EXT, devices[i], NULL);
		const char *vendor = NULL;

		if (found != EGL_NO_DISPLAY && eglInitialize(found, NULL, NULL))
			vendor = eglQueryString(found, EGL_VENDOR);
		if (vendor != NULL && strstr(vendor, "NVIDIA") != NULL)
			return found;
	}
	return EGL_NO_DISPLAY;
}

int main(int argc, char **argv)
{
	const unsigned wanted = wanted_mib(argc, argv);
	const GLuint zero = 0;
	EGLDisplay display = display_of_nvidia();
	unsigned got = 0;
	GLuint buffer;

	if (display == EGL_NO_DISPLAY)
		return nothing("no GPU of NVIDIA's");
	if (!eglBindAPI(EGL_OPENGL_API))
		return nothing("no OpenGL");
	EGLContext context = eglCreateContext(display, EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, NULL);
	if (context == EGL_NO_CONTEXT || !eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context))
		return nothing("no context");
	while (got < wanted) {
		glGenBuffers(1, &buffer);
		glBindBuffer(GL_ARRAY_BUFFER, buffer);
		glBufferData(GL_ARRAY_BUFFER, PIECE_BYTES, NULL, GL_STATIC_DRAW);
		glClearBufferData(GL_ARRAY_BUFFER, GL_R32UI, GL_RED_INTEGER, GL_UNSIGNED_INT, &zero);
		glFinish();
		if (glGetError() != GL_NO_ERROR)
			break;
		got += PIECE_MIB;
	}
	return hold(got);
}
