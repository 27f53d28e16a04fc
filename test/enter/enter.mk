# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# A SPANK plugin for tests that runs tasks in containers. Needs slurm/spank.h.

$(BUILD)/test-enter/enter.so: test/enter/enter.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -g -O1 -Wall -Wextra -Werror -shared -fPIC -o $@ $<
