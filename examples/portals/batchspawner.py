# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Lines of jupyterhub_config.py: each notebook server is a job with a slice."""

c = get_config()  # noqa: F821  JupyterHub provides it

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_runtime = "04:00:00"
c.SlurmSpawner.req_memory = "8G"  # of the host
# The template of batchspawner ends its #SBATCH lines with {{options}}.
c.SlurmSpawner.req_options = "--gres=vgpu:1 --vgpu-mem=8G --vgpu-policy=elastic"
