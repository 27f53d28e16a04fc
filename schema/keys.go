// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// ofKeys are the parts that are made of the table of keys.
func ofKeys(keys []config.Key) []part {
	return []part{
		{file: "packaging/config.yaml.example", text: exampleOfKeys(keys)},
		{"docs/man/slurm-vgpu-config.yaml.5", "keys", manOfKeys(keys)},
	}
}

const exampleColumns = 100

// commented is text as lines of comment that begin alike; the first one begins with first.
func commented(first, other, markdown string) string {
	var b strings.Builder
	line := first
	for word := range strings.FieldsSeq(plain(markdown)) {
		if len(line)+1+len(word) > exampleColumns {
			b.WriteString(line + "\n")
			line = other
		}
		if line != "" && !strings.HasSuffix(line, " ") {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
}

// quoted is a value as it stands in the file.
func quoted(value string) string {
	if value == "" {
		return `""`
	}
	return value
}

func exampleOfKeys(keys []config.Key) string {
	var b strings.Builder
	b.WriteString(`# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# /etc/slurm-vgpu/config.yaml: slurm-vgpu on one node. slurm-vgpu-config.yaml(5) says more.
#
# Every key is here with its default, as a comment. A key that is not set has its default; a file
# that does not exist sets none. The file must be owned by root and writable by no other user.
# Memory is in MiB throughout; times have a unit (60s, 5m, 24h).
`)
	section, group := "", ""
	for _, k := range keys {
		if k.Section != section {
			section, group = k.Section, ""
			fmt.Fprintf(&b, "\n# ---- %s %s\n", section, strings.Repeat("-", exampleColumns-8-len(section)))
		}
		of, name, nested := strings.Cut(k.Name, ".")
		sign, begin := "# ", "#"
		switch {
		case !nested:
			name = of
			b.WriteString("\n")
		case group != of:
			fmt.Fprintf(&b, "\n#%s:\n", of)
		}
		if nested { // and stays a comment where the key's own sign is taken away
			group, sign, begin = of, "#  # ", "#  "
		}
		if len(k.Meaning) > 0 {
			b.WriteString(commented(sign, sign, k.Meaning[0]))
		}
		if k.Excludes() != nil {
			b.WriteString(commented(sign, sign, notBeside(k)))
		}
		for _, word := range k.Words {
			if word.Means != nil {
				b.WriteString(commented(fmt.Sprintf("# %-*s ", widest(k.Words), word.Is), fmt.Sprintf("# %-*s ", widest(k.Words), ""), word.Means[0]))
			}
		}
		if k.Example != "" {
			fmt.Fprintf(&b, "%sFor example %s\n", sign, k.Example)
		}
		fmt.Fprintf(&b, "%s%s: %s\n", begin, name, quoted(k.Default()))
	}
	return b.String()
}

func notBeside(k config.Key) string {
	return "Not beside `" + strings.Join(k.Excludes(), "` or `") + "`."
}

func widest(words []config.Word) (most int) {
	for _, word := range words {
		most = max(most, len(word.Is))
	}
	return most + 1
}

// tagOf is what a key's entry begins with.
func tagOf(k config.Key) string {
	switch usual := k.Default(); usual {
	case "":
		return fmt.Sprintf(`.BR %s " (%s; default " """""" )`, dashes(k.Name), k.Type)
	case "[]", "{}":
		return fmt.Sprintf(`.BR %s " (%s; default empty)"`, dashes(k.Name), k.Type)
	default:
		return fmt.Sprintf(`.BR %s " (%s; default " %s )`, dashes(k.Name), k.Type, dashes(usual))
	}
}

func manOfKeys(keys []config.Key) string {
	var b strings.Builder
	section := ""
	for i, k := range keys {
		if k.Section != section {
			section = k.Section
			fmt.Fprintf(&b, ".SS %s\n", section)
		}
		if len(k.Meaning) == 0 {
			continue // with the one before
		}
		fmt.Fprintf(&b, ".TP\n%s\n", tagOf(k))
		for _, other := range keys[i+1:] {
			if len(other.Meaning) > 0 {
				break
			}
			fmt.Fprintf(&b, ".TQ\n%s\n", tagOf(other))
		}
		b.WriteString(troff(strings.Join(k.Meaning, " ")))
		if k.Excludes() != nil {
			b.WriteString(troff(notBeside(k)))
		}
		if len(k.Words) > 0 && k.Words[0].Means != nil {
			b.WriteString(".RS\n")
			for _, word := range k.Words {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s", dashes(word.Is), troff(strings.Join(word.Means, " ")))
			}
			b.WriteString(".RE\n")
		}
		for _, more := range k.More {
			b.WriteString(".IP\n" + troff(more))
		}
	}
	return b.String()
}
