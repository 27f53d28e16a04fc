// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Werror -D_FORTIFY_SOURCE=2 -fstack-protector-strong
// #include "../plan.h"
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/slurm-vgpu/slurm-vgpu/internal/launch"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

// The functions below are the only way from C into Go. Each converts, calls package launch and
// converts back. None lets a panic through, because nothing in C could stop it.

// vgpuIsOf says whether this is of the same release as the plugin that has loaded it, with structs of the same sizes.
//
//export vgpuIsOf
func vgpuIsOf(number *C.char, request, step, plan C.size_t) C.int {
	if C.GoString(number) != version.Number || request != C.sizeof_struct_vgpu_request || step != C.sizeof_struct_vgpu_step ||
		plan != C.sizeof_struct_vgpu_plan {
		return 0
	}
	return 1
}

// vgpuCheckOption writes why the text cannot be the option's value, or leaves reason as it is.
//
//export vgpuCheckOption
func vgpuCheckOption(index C.int, text *C.char, reason *C.char) {
	out := unsafe.Slice(reason, C.VGPU_REASON_BYTES)
	err := guard(func() error {
		return request.ParseOption(request.Options[index].Name, C.GoString(text), new(request.Request))
	})
	if err != nil {
		putReason(out, err)
	}
}

// vgpuEncodeRequest fills request, defaults, typed and warning, or error.
//
//export vgpuEncodeRequest
func vgpuEncodeRequest(r *C.struct_vgpu_request) {
	err := guard(func() error {
		typed := optionTexts(&r.option)
		asked, err := typed.Request()
		if err != nil {
			return err
		}
		// A bad default is left out: it stands in a profile and must not stop jobs without vgpu.
		defaults, bad := optionTexts(&r.fallback).Defaults(typed)
		if bad != nil {
			putReason(r.warning[:], bad)
		}
		if err := put(r.request[:], asked.Encode()); err != nil {
			return err
		}
		if err := put(r.typed[:], typed.Spelled()); err != nil {
			return err
		}
		return put(r.defaults[:], defaults.Encode())
	})
	if err != nil {
		putReason(r.error[:], err)
	}
}

// vgpuPlan says what becomes of the step's tasks. Whatever goes wrong is a refusal with a reason.
//
//export vgpuPlan
func vgpuPlan(s *C.struct_vgpu_step, p *C.struct_vgpu_plan) {
	err := guard(func() error {
		step := goStep(s)
		step.Options = optionTexts(&s.option)
		step.WholeJob = s.whole_job != 0
		step.Request = get(s.request[:])
		step.GRES = launch.StepGRES{Known: s.gres_known != 0, PerNode: get(s.gres[:]), Otherwise: get(s.gres_elsewhere[:])}
		step.Wait = time.Duration(s.wait_ms) * time.Millisecond
		step.GPUs, step.AllGPUs = get(s.gpus[:]), s.all_gpus != 0
		step.LDPreload = get(s.ld_preload[:])
		step.LDPreloadCut = s.ld_preload_cut != 0
		step.Binds = launch.Binds{Apptainer: get(s.apptainer_bind[:]), Singularity: get(s.singularity_bind[:]), Cut: s.binds_cut != 0}
		plan, err := launch.Prepare(step)
		if err != nil {
			return err
		}
		p.uid, p.gid = s.uid, s.gid
		return putPlan(p, plan)
	})
	if err != nil {
		putReason(p.reason[:], err)
		p.verdict = C.VGPU_REFUSE
	}
}

// vgpuFinishStep keeps what the step used, or writes into reason why it is lost; into says what its user should know.
//
//export vgpuFinishStep
func vgpuFinishStep(s *C.struct_vgpu_step, says *C.char, reason *C.char) {
	err := guard(func() error {
		text, err := launch.Finish(goStep(s))
		return errors.Join(err, put(unsafe.Slice(says, C.VGPU_REASON_BYTES), text))
	})
	if err != nil {
		putReason(unsafe.Slice(reason, C.VGPU_REASON_BYTES), err)
	}
}

// vgpuDropPreload takes our library out of the list in env.value.
//
//export vgpuDropPreload
func vgpuDropPreload(env *C.struct_vgpu_env) {
	_ = guard(func() error { return put(env.value[:], launch.DropPreload(get(env.value[:]))) })
}

// vgpuDropBinds takes what is ours out of the list in env.value.
//
//export vgpuDropBinds
func vgpuDropBinds(env *C.struct_vgpu_env) {
	_ = guard(func() error { return put(env.value[:], launch.DropBinds(get(env.value[:]))) })
}

func guard(do func() error) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("internal fault: %v", caught)
		}
	}()
	return do()
}

func optionTexts(texts *[C.VGPU_OPTION_COUNT][C.VGPU_OPTION_BYTES]C.char) request.Texts {
	options := make(request.Texts, len(request.Options)) // of which plan.h has as many (TestSizesAgree)
	for i := range texts {
		options[i] = get(texts[i][:])
	}
	return options
}

func goStep(s *C.struct_vgpu_step) launch.Step {
	return launch.Step{
		RunDir: rundir.Dir(get(s.run_dir[:])),
		Job:    uint32(s.job),
		Step:   uint32(s.step),
		UID:    uint32(s.uid),
		GID:    uint32(s.gid),
	}
}

func flag(set bool) C.uint32_t {
	if set {
		return 1
	}
	return 0
}

func putPlan(p *planData, plan launch.Plan) error {
	if !plan.Ours {
		p.verdict = C.VGPU_LEAVE
		return nil
	}
	if len(plan.Whole) > len(p.whole) || len(plan.Env) > len(p.env) || len(plan.Mask) > len(p.mask) || len(plan.Own) > len(p.own) || len(plan.Guards) > len(p.guard) {
		return fmt.Errorf("prepare the step: %d variables, %d masked devices and %d guards are more than fit",
			len(plan.Env), len(plan.Mask), len(plan.Guards))
	}
	for i, env := range plan.Env {
		if err := put(p.env[i].name[:], env.Name); err != nil {
			return err
		}
		if err := put(p.env[i].value[:], env.Value); err != nil {
			return err
		}
	}
	for i, node := range plan.Mask {
		if err := put(p.mask[i][:], node); err != nil {
			return err
		}
	}
	for i, own := range plan.Own {
		if err := errors.Join(put(p.own[i].file[:], own.File), put(p.own[i].node[:], own.Node)); err != nil {
			return err
		}
	}
	p.own_count = C.uint32_t(len(plan.Own))
	for i, gpu := range plan.Whole {
		p.whole[i].slurm, p.whole[i].own = C.uint32_t(gpu.Slurm), C.uint32_t(gpu.Own)
		if err := put(p.whole[i].visible[:], gpu.Visible); err != nil {
			return err
		}
	}
	p.whole_count = C.uint32_t(len(plan.Whole))
	for i, guard := range plan.Guards {
		if err := errors.Join(put(p.guard[i].driver[:], guard.Driver), put(p.guard[i].guard[:], guard.Guard),
			put(p.guard[i].behind[:], guard.Behind)); err != nil {
			return err
		}
	}
	if err := put(p.library[:], plan.Library); err != nil {
		return err
	}
	p.guard_count = C.uint32_t(len(plan.Guards))
	if err := put(p.step_dir[:], plan.StepDir); err != nil {
		return err
	}
	if err := put(p.preload_file[:], plan.PreloadFile); err != nil {
		return err
	}
	if err := errors.Join(put(p.pages_dir[:], plan.PagesDir), put(p.all_pages[:], plan.AllPages)); err != nil {
		return err
	}
	p.env_count, p.mask_count, p.foreign_count = C.uint32_t(len(plan.Env)), C.uint32_t(len(plan.Mask)), C.uint32_t(plan.Foreign)
	p.strict, p.bind_tasks, p.deny_userns = flag(plan.Strict), flag(plan.BindTasks), flag(plan.DenyUserNamespaces)
	p.verdict = C.VGPU_RUN
	return nil
}
