#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the examples, or those that are named, and compares what they print with their expected.txt,
# where <...> stands for anything. Run it in a folder that compute nodes see and you can write.
#
#   cp -r /usr/share/doc/slurm-vgpu/examples . && examples/check.sh [-p PARTITION] [01-half-gpu ...]

cd "$(dirname "$0")" || exit 1
while getopts p: option; do
    [ "$option" = p ] || exit 2
    export SBATCH_PARTITION=$OPTARG
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- [0-9]*/
bad=0

# matches EXPECTED PRINTED: says where they differ first.
matches() {
    local -a want got
    local i pattern
    mapfile -t want < "$1"
    # What srun says while the step before is still being ended is Slurm's, on a busy node.
    mapfile -t got < <(grep -vE '^srun: (Job [0-9]+ step creation temporarily disabled|Step created for )' "$2")
    for ((i = 0; i < ${#want[@]} || i < ${#got[@]}; i++)); do
        pattern=$(sed 's/[][\\.*^$+?(){}|]/\\&/g; s/<[^>]*>/.*/g' <<< "${want[i]}")
        [[ ${got[i]} =~ ^$pattern$ ]] && continue
        printf '  line %d of %s\n    expected: %s\n    printed:  %s\n' $((i + 1)) "$2" "${want[i]}" "${got[i]}"
        return 1
    done
}

for name; do
    name=${name%/}
    job=$(cd "$name" && sbatch --parsable --wait run.sbatch)
    ok=yes
    # One file for each task of an array. A shared file system may show them late.
    for _ in $(seq 50); do
        files=$(ls "$name"/*."$job".out "$name"/*."$job"_*.out 2>/dev/null) && break
        [ -n "$files" ] && break
        sleep 0.2
    done
    [ -n "$files" ] || { echo "  job $job of $name has left no output"; ok=no; }
    # What an example needs beside the driver need not be installed.
    if grep -qsE '^(train.py: PyTorch|skip: )' $files; then
        echo "skip  $name: $(cat $files)"
        continue
    fi
    for file in $files; do
        matches "$name/expected.txt" "$file" || ok=no
    done
    if [ $ok = yes ]; then echo "ok    $name"; else echo "FAIL  $name"; bad=1; fi
done
exit $bad
