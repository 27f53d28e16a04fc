# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# A SPANK plugin for tests that plays Slurm's cgroup/v2. Needs slurm/spank.h.

$(BUILD)/test-cgroup/cgroup.so: test/cgroup/cgroup.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -g -O1 -Wall -Wextra -Werror -shared -fPIC -o $@ $<
