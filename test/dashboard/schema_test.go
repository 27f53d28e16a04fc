// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package dashboard holds the board that is shipped against Grafana's own schema. It is a module of its own, so that
// nothing that is installed depends on the schema.
package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const board = "../../packaging/grafana/slurm-vgpu.json"

// check reads a board strictly: no field that the schema does not have, none missing that it asks for. The schema's reader of boards
// hands out no panels and looks into neither the configuration of their fields nor their queries, so these are read by themselves.
func check(text []byte) (panels []dashboard.Panel, err error) {
	plugins.RegisterDefaultPlugins()
	var board dashboard.Dashboard
	if err := anyOf(board.UnmarshalJSONStrict(text)); err != nil {
		return nil, err
	}
	var raw struct {
		Panels []struct {
			Type                 string
			Options, FieldConfig json.RawMessage
			Targets              []json.RawMessage
		}
	}
	var whole struct{ Panels []json.RawMessage }
	if err := errors.Join(board.Validate(), json.Unmarshal(text, &raw), json.Unmarshal(text, &whole)); err != nil {
		return nil, err
	}
	for i, part := range raw.Panels {
		var panel dashboard.Panel
		var fields dashboard.FieldConfigSource
		errs := []error{anyOf(panel.UnmarshalJSONStrict(whole.Panels[i])), anyOf(fields.UnmarshalJSONStrict(part.FieldConfig)), panel.Validate(), fields.Validate()}
		var options timeseries.Options
		if errs = append(errs, anyOf(options.UnmarshalJSONStrict(part.Options)), options.Validate()); part.Type != "timeseries" {
			errs = append(errs, fmt.Errorf("there is no reader for a panel %q here", part.Type))
		}
		for _, target := range part.Targets {
			var query prometheus.Dataquery
			if errs = append(errs, anyOf(query.UnmarshalJSONStrict(target)), query.Validate()); query.Expr == "" {
				errs = append(errs, errors.New("a query asks nothing"))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("panel %d: %w", i, err)
		}
		panels = append(panels, panel)
	}
	return panels, nil
}

// anyOf is nil where a list of errors is empty, which the schema's readers return for none.
func anyOf(err error) error {
	if list, is := err.(cog.BuildErrors); is && len(list) == 0 {
		return nil
	}
	return err
}

func shipped(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(board)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheBoardIsOneByTheSchema(t *testing.T) {
	panels, err := check(shipped(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(panels) < 9 {
		t.Errorf("%d panels", len(panels))
	}
	ids, taken := map[uint32]bool{}, map[[2]uint32]string{}
	for _, panel := range panels {
		if panel.Id == nil || panel.Title == nil || panel.GridPos == nil || len(panel.Targets) == 0 || *panel.Datasource.Type != "prometheus" {
			t.Errorf("a panel without id, title, place or queries of Prometheus: %+v", panel)
			continue
		}
		if ids[*panel.Id] {
			t.Errorf("%s: another panel has id %d", *panel.Title, *panel.Id)
		}
		ids[*panel.Id] = true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other, is := taken[[2]uint32{x, y}]; is || x >= 24 {
					t.Fatalf("%s and %q overlap, or it is beside the board", *panel.Title, other)
				}
				taken[[2]uint32{x, y}] = *panel.Title
			}
		}
	}
}

// A board that is wrong somewhere does not pass.
func TestTheSchemaIsStrict(t *testing.T) {
	text := string(shipped(t))
	for old, wrong := range map[string]string{
		`"schemaVersion": 38`:     `"schemaVersion": "38"`,
		`"showLegend": true,`:     ``,
		`"placement": "bottom"`:   `"placement": 7`,
		`"tooltip": {`:            `"tooltips": {}, "tooltip": {`,
		`"editable": true`:        `"edible": true`,
		`"unit": "bytes",`:        `"unit": "bytes", "units": "bytes",`,
		`"gridPos": {`:            `"gridPos": {"z": 1, `,
		`"type": "timeseries",`:   ``,
		`"annotations": {`:        `"annotation": {`,
		`"includeAll": true,`:     `"includeAll": "yes",`,
		`"fieldConfig": {`:        `"fieldConfig": {"custom": {}, `,
		`"displayMode": "table",`: ``,
		`"options": {`:            `"options": {"legends": {}, `,
		`"query": "prometheus"`:   `"query": "prometheus", "sources": []`,
		`"templating": {`:         `"templating": {"variables": [], `,
		`"name": "datasource",`:   ``,
		`"calcs": [`:              `"calcs": [1, `,
		`"max": 1`:                `"max": "1"`,
		`"refId": "instance"`:     ``,
		`"uid": "slurm-vgpu",`:    `"uid": 5,`,
		`"datasource": {`:         `"datasource": {"name": "x", `,
		`"mode": "multi",`:        ``,
		`"targets": [`:            `"targets": 1, "target": [`,
		`"expr": `:                `"expression": "", "expr": `,
		`"legendFormat": "job`:    `"legend": "job`,
	} {
		if changed := strings.Replace(text, old, wrong, 1); changed == text {
			t.Errorf("%s is not in the board", old)
		} else if _, err := check([]byte(changed)); err == nil {
			t.Errorf("it passes with %s in place of %s", wrong, old)
		}
	}
}
