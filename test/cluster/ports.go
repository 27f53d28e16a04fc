// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// port returns a free TCP port for a daemon, the same one each time, and holds it until release.
// Ports come from below the range that the kernel hands to outgoing connections.
func (c *Cluster) port(name string) int {
	if port, ok := c.ports[name]; ok {
		return port
	}
	for {
		port := 10000 + rand.IntN(22000)
		listener, err := net.Listen("tcp", net.JoinHostPort("0.0.0.0", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		c.ports[name] = port
		c.held[name] = listener
		return port
	}
}

// release gives the port up for its daemon to take.
func (c *Cluster) release(name string) {
	if listener, ok := c.held[name]; ok {
		listener.Close()
		delete(c.held, name)
	}
}

func (c *Cluster) address(name string) string { return fmt.Sprintf("127.0.0.1:%d", c.port(name)) }
