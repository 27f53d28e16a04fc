// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// ofOptions are the parts that are made of the table of options.
func ofOptions(options []request.Option) []part {
	return []part{
		{file: "spank/rows.h", text: rowsOfC(options)},
		{"gres/vgpu_parse.lua", "options", keysOfLua(options)},
		{"packaging/completions/slurm-vgpu.bash", "options", valuesOfBash(options)},
		{"README.md", "options", tableOfReadme(options)},
		{"docs/user.md", "options", tableForUsers(options)},
		{"docs/man/slurm-vgpu.7", "options", manOfOptions(options, func(o request.Option) string { return o.Long })},
		{"docs/man/spank_vgpu.so.8", "options", manOfOptions(options, func(o request.Option) string { return o.Help })},
		{"docs/man/spank_vgpu.so.8", "variables", manOfVariables(options)},
		{"docs/man/slurm-vgpu.7", "variables", manOfVariables(options)},
	}
}

// rowsOfC is the plugin's table.
func rowsOfC(options []request.Option) string {
	var b strings.Builder
	fmt.Fprintf(&b, `/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The table of options, made of request.Options by make generate: change it there. */
#ifndef VGPU_ROWS_H
#define VGPU_ROWS_H

#define VGPU_OPTION_COUNT %d

/* In the order of request.Options, so that Go finds an option by its index. */
static const struct vgpu_row {
	const char *name, *metavar, *usage, *variable;
} vgpu_rows[VGPU_OPTION_COUNT] = {
`, len(options))
	for _, o := range options {
		fmt.Fprintf(&b, "\t{%q, %q,\n\t %q,\n\t %q},\n", o.Name, o.Metavar, "[vgpu] "+o.Help, o.Env())
	}
	b.WriteString("};\n\n#endif\n")
	return b.String()
}

// keysOfLua is how job_submit reads the canonical form, and the units of memory.
func keysOfLua(options []request.Option) string {
	var b strings.Builder
	b.WriteString("parse.keys = {\n")
	for _, o := range options {
		fmt.Fprintf(&b, "\t{ name = %q, reads = %q", o.Key(), o.Lua)
		if o.Values != nil {
			fmt.Fprintf(&b, `, values = { ["%s"] = true }`, strings.Join(o.Values, `"] = true, ["`))
		}
		if o.Picks {
			b.WriteString(", picks = true")
		}
		b.WriteString(" },\n")
	}
	b.WriteString("}\n")
	var units []string
	for _, unit := range request.Units {
		units = append(units, fmt.Sprintf("%s = %d", unit.Name, unit.MiB))
	}
	fmt.Fprintf(&b, "local units = { %s }\n", strings.Join(units, ", "))
	return b.String()
}

// valuesOfBash is what the shell offers.
func valuesOfBash(options []request.Option) string {
	var b strings.Builder
	var all []string
	b.WriteString("declare -gA _slurm_vgpu_values=(\n")
	for _, o := range options {
		fmt.Fprintf(&b, "    [--%s]=%q\n", o.Name, strings.Join(o.Offers, " "))
		all = append(all, "--"+o.Name+"=")
	}
	fmt.Fprintf(&b, ")\n_slurm_vgpu_options=%q\n", strings.Join(all, " "))
	return b.String()
}

// cell is Markdown that stands in a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func firstOf(long string) string {
	first, _, _ := strings.Cut(long, "\n\n")
	return first
}

// forms is what may stand behind the option's "=".
func forms(o request.Option) string {
	if o.Values != nil {
		return strings.Join(o.Values, "|")
	}
	return o.Forms
}

func tableOfReadme(options []request.Option) string {
	var b strings.Builder
	b.WriteString("| option | its default | meaning |\n|---|---|---|\n")
	for _, o := range options {
		fmt.Fprintf(&b, "| `--%s=%s` | `%s` | %s |\n", o.Name, cell(forms(o)), o.Env(), cell(firstOf(o.Long)))
	}
	return b.String()
}

func tableForUsers(options []request.Option) string {
	var b strings.Builder
	b.WriteString("| option | in short | on an `srun` inside a job |\n|---|---|---|\n")
	for _, o := range options {
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", o.Name, cell(o.Help), cell(o.InStep))
	}
	return b.String()
}

func manOfOptions(options []request.Option, says func(request.Option) string) string {
	var b strings.Builder
	for _, o := range options {
		b.WriteString(".TP\n")
		if o.Values != nil {
			fmt.Fprintf(&b, ".BR %s= %s\n", dashes("--"+o.Name), `"\fB`+strings.Join(o.Values, `\fR|\fB`)+`\fP"`)
		} else {
			fmt.Fprintf(&b, ".BI %s= %s\n", dashes("--"+o.Name), o.Metavar)
		}
		b.WriteString(troff(says(o)))
	}
	return b.String()
}

func manOfVariables(options []request.Option) string {
	var all []string
	for _, o := range options {
		all = append(all, o.Env())
	}
	return ".BR " + strings.Join(all, ` ", " `) + "\n"
}
