# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# bash: the options of slurm-vgpu after sbatch, salloc and srun, beside what completes them already: Slurm's own
# completion, or another. /etc/bash_completion.d/ or a line `. FILE` in ~/.bashrc loads it.

# What is offered for each option; nothing where names of GPUs are wanted.
# begin generated options: made of internal/request by make generate
declare -gA _slurm_vgpu_values=(
    [--vgpu-mem]="1G 2G 4G 8G 16G 25% 50% 100%"
    [--vgpu-cores]="10 20 25 30 40 50 60 70 75 80 90 100"
    [--vgpu-place]="pack spread"
    [--vgpu-policy]="cap elastic"
    [--vgpu-priority]="latency normal batch"
    [--vgpu-gpu]=""
    [--vgpu-uuid]=""
    [--vgpu-bind]="none task"
)
_slurm_vgpu_options="--vgpu-mem= --vgpu-cores= --vgpu-place= --vgpu-policy= --vgpu-priority= --vgpu-gpu= --vgpu-uuid= --vgpu-bind="
# end generated options

# The function that completed a command before, by command; a name that is there and empty: there is none.
declare -gA _slurm_vgpu_before

# Finds who completed the command before: what was registered already, or what bash-completion loads on demand.
_slurm_vgpu_find() {
    local command=$1 loader spec
    complete -r "$command" 2> /dev/null
    for loader in _comp_load __load_completion _completion_loader; do # 2.12, 2.8, older
        declare -F "$loader" > /dev/null && { "$loader" "$command" > /dev/null 2>&1; break; }
    done
    spec=$(complete -p "$command" 2> /dev/null)
    _slurm_vgpu_before[$command]=
    if [[ $spec =~ \ -F\ ([^ ]+) && ${BASH_REMATCH[1]} != _slurm_vgpu ]]; then
        _slurm_vgpu_before[$command]=${BASH_REMATCH[1]}
    fi
    complete -o default -o bashdefault -F _slurm_vgpu "$command"
}

_slurm_vgpu() {
    local command=$1 cur=${COMP_WORDS[COMP_CWORD]} option=
    # "=" parts words, so --vgpu-place=pa is three of them.
    if [[ $cur == = ]]; then
        option=${COMP_WORDS[COMP_CWORD - 1]} cur=
    elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $cur == --vgpu-*=* ]]; then # "=" is not in COMP_WORDBREAKS
        option=${cur%%=*} cur=${cur#*=}
    elif [[ $cur != -* ]]; then
        option=${COMP_WORDS[COMP_CWORD - 1]}
    fi
    if [[ $option == --vgpu-* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${_slurm_vgpu_values[$option]-}" -- "$cur")
        return
    fi
    [[ -v _slurm_vgpu_before[$command] ]] || _slurm_vgpu_find "$command"
    COMPREPLY=()
    local before=${_slurm_vgpu_before[$command]}
    [[ -n $before ]] && "$before" "$@"
    local ours=()
    if [[ $option == --gres ]]; then
        mapfile -t ours < <(compgen -W vgpu:1 -- "$cur")
    elif [[ $cur == --* && $cur != *=* ]]; then
        mapfile -t ours < <(compgen -W "$_slurm_vgpu_options" -- "$cur")
        ((${#ours[@]})) && compopt -o nospace 2> /dev/null
    fi
    COMPREPLY+=("${ours[@]}")
}

for _slurm_vgpu_command in sbatch salloc srun; do
    # What is registered by now is kept; what is not is looked for when it is first needed.
    if [[ $(complete -p "$_slurm_vgpu_command" 2> /dev/null) =~ \ -F\ ([^ ]+) && ${BASH_REMATCH[1]} != _slurm_vgpu ]]; then
        _slurm_vgpu_before[$_slurm_vgpu_command]=${BASH_REMATCH[1]}
    fi
    complete -o default -o bashdefault -F _slurm_vgpu "$_slurm_vgpu_command"
done
unset _slurm_vgpu_command
