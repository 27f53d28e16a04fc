// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHeader(t *testing.T) {
	for _, test := range []struct {
		name, text, version string
		want                []string
	}{
		{"plain", "CUresult CUDAAPI cuInit(unsigned int Flags);", "", []string{"cuInit"}},
		{"over several lines", "CUresult\nCUDAAPI\n  cuMemFoo (\n CUdeviceptr *p,\n size_t n);", "", []string{"cuMemFoo"}},
		{"deprecated", "__CUDA_DEPRECATED CUresult CUDAAPI cuOld(int a);", "", []string{"cuOld"}},
		{"versioned", "#define CUDA_VERSION 13000\n#define cuFoo cuFoo_v2\nCUresult CUDAAPI cuFoo(void);", "13000",
			[]string{"cuFoo", "cuFoo_v2"}},
		{"versioned, the name itself declared nowhere", "#define nvmlFoo nvmlFoo_v2\nnvmlReturn_t DECLDIR nvmlFoo_v2(void);",
			"", []string{"nvmlFoo", "nvmlFoo_v2"}},
		{"per thread", "#  define cuFoo __CUDA_API_PTSZ(cuFoo)\n#define cuBar __CUDA_API_PTDS( cuBar_v2 )\n" +
			"CUresult CUDAAPI cuFoo(CUstream s);\nCUresult CUDAAPI cuBar(void);", "",
			[]string{"cuBar", "cuBar_v2", "cuBar_v2_ptds", "cuFoo", "cuFoo_ptsz"}},
		{"renamed twice", "#define cuFoo_v2 __CUDA_API_PTSZ(cuFoo_v2)\n#define cuFoo cuFoo_v2\nCUresult CUDAAPI cuFoo(void);", "",
			[]string{"cuFoo", "cuFoo_v2", "cuFoo_v2_ptsz"}},
		{"a definition over two lines", "#define cuFoo \\\n  cuFoo_v2\nCUresult CUDAAPI cuFoo(void);", "",
			[]string{"cuFoo", "cuFoo_v2"}},
		{"inline, not a symbol", "static inline CUresult cuFoo_v2_ptsz(int a) { return cuFoo_v2(a); }\n" +
			"#define cuFoo_v2 cuFoo_v2_ptsz\nCUresult CUDAAPI cuFoo_v2(int a);", "", []string{"cuFoo_v2"}},
		{"types and constants", "#define nvmlMemory_v2 NVML_STRUCT_VERSION(Memory, 2)\n#define nvmlA_t nvmlB_t\n" +
			"typedef void (CUDA_CB *CUcallback)(void *p);\nnvmlReturn_t DECLDIR nvmlInit(void);", "", []string{"nvmlInit"}},
		{"in a comment", "/* CUresult CUDAAPI cuNo(void); */ // nvmlReturn_t DECLDIR nvmlNo(void);\nCUresult CUDAAPI cuYes(void);",
			"", []string{"cuYes"}},
		{"another result", "/*** NVML VERSION: 13.3.29 ***/\nconst DECLDIR char* nvmlErrorString(nvmlReturn_t result);", "13.3.29",
			[]string{"nvmlErrorString"}},
		{"carriage returns", "#define cuFoo cuFoo_v2\r\nCUresult CUDAAPI cuFoo(void);\r\n", "", []string{"cuFoo", "cuFoo_v2"}},
		{"nothing", "int main(void) { return 0; }", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := parseHeader(test.text)
			if diff := cmp.Diff(test.want, got.names); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if got.version != test.version {
				t.Errorf("version %q, want %q", got.version, test.version)
			}
		})
	}
}
