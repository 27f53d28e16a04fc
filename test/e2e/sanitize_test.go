// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestSanitizersRunInASlice: programs that a sanitizer was built into start, find the fault that is in them, and are held to the slice.
func TestSanitizersRunInASlice(t *testing.T) {
	begin(t)
	need(t, one, "gcc", "gcc --version")
	for name, row := range map[string]struct{ flags, source, finds string }{
		"address, shared": {"-fsanitize=address", "char *p = malloc(8); free(p); p[0] = 1;", "heap-use-after-free"},
		"address, static": {"-fsanitize=address -static-libasan", "char *p = malloc(8); free(p); p[0] = 1;", "heap-use-after-free"},
		"threads":         {"-fsanitize=thread -pthread", "pthread_t t; pthread_create(&t, 0, other, 0); word = 1; pthread_join(t, 0);", "data race"},
		"undefined":       {"-fsanitize=undefined", "volatile int n = 2147483647; n++;", "signed integer overflow"},
		"leaks":           {"-fsanitize=leak", "volatile char *p = malloc(8); p = 0;", ""},
	} {
		source := `#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static int word;
static void *other(void *x) { word = 2; return x; }
int main(int n, char **of) {
	(void)other; (void)of;
	if (n > 1) { ` + row.source + ` }
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned) = (int (*)(unsigned))(cuda ? dlsym(cuda, "cuInit") : 0);
	int (*retain)(void **, int) = (int (*)(void **, int))(cuda ? dlsym(cuda, "cuDevicePrimaryCtxRetain") : 0);
	int (*use)(void *) = (int (*)(void *))(cuda ? dlsym(cuda, "cuCtxSetCurrent") : 0);
	int (*total)(size_t *, size_t *) = (int (*)(size_t *, size_t *))(cuda ? dlsym(cuda, "cuMemGetInfo_v2") : 0);
	void *context = 0; size_t free_bytes = 0, all = 0;
	int done = init && retain && use && total && !init(0) && !retain(&context, 0) && !use(context) && !total(&free_bytes, &all);
	printf("%d %zu MiB\n", done, all >> 20);
	return 0;
}`
		job := "cat > s.c <<'END'\n" + source + "\nEND\n" +
			"gcc -g -w " + row.flags + " -o s s.c -ldl || exit 1\n" +
			"ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 LSAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 ./s; ./s fault 2>&1 | head -40; true"
		out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", job)
		if !strings.HasPrefix(out, "1 3000 MiB\n") || !strings.Contains(out, row.finds) {
			t.Errorf("%s: %s", name, out)
		}
	}
}
