// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

func (k *keeper) openDriver() (err error) {
	if k.driver == nil {
		k.driver, err = k.Driver()
	}
	return err
}

func (k *keeper) closeDriver() {
	if k.driver != nil {
		k.driver.Close()
		k.driver = nil
		clear(k.instances)
	}
}

func (k *keeper) openGPU(g *gpu) error {
	if g.device != nil {
		return nil
	}
	if err := k.openDriver(); err != nil {
		return err
	}
	opened, err := k.driver.GPU(g.GPU)
	if err != nil {
		return err
	}
	g.device = opened
	return nil
}

// closeLog closes the files that one tenant alone does not need: all of the GPU, unless the tenant is held by its cap.
func (k *keeper) closeLog(g *gpu) {
	if g.named == nil {
		k.closeGPU(g)
	} else if g.log != nil {
		g.log.Close()
		g.log = nil
	}
}

func (k *keeper) closeGPU(g *gpu) {
	if g.log != nil {
		g.log.Close()
		g.log = nil
	}
	if g.device != nil {
		g.device.Close()
		g.device = nil
	}
}

// openLog begins to read the log of switches.
func (k *keeper) openLog(g *gpu) {
	g.looked = 0
	err := k.openGPU(g)
	if err == nil {
		g.log, err = g.device.OpenLog()
	}
	if err != nil {
		g.log = nil // an interface with nothing in it
		k.once("GPU time of several is not counted: the driver's log of switches cannot be had", err)
	}
}
