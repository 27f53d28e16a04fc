// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// A job's AdminComment, one part per node:
//
//	{"vgpu":{"v":1,"nodes":{"n1":[{"gpu":"GPU-…","mem_mib":3000,"cores":30,"peak_mib":2998,"refused":1,"gpu_s":12.5}]}}}
//	{"vgpu":{"v":1,"nodes":{"n1":[{…,"gpu_s":12.5,"unknown_s":0.4,"inexact":true,…}]}}}
//	{"vgpu":{"v":1,"nodes":{"n1":[{…,"seen":"sets its own time slice","frozen":2,"killed":1,…}]}}}
//	{"vgpu":{"v":1,"nodes":{},"refusals":{"n1":"no GPU has 3000 MiB free"}}}
//
// A slice has its use over time as "curve", too (curve.go), as long as there is room.
//
// Other keys of an object that is there already are kept; a text that is none moves to the key "text".
//
// Where only sacctmgr can write, Slurm 22.05 turns every quote into ` and every letter into lower
// case. ParseComment reads that too.

// CommentVersion is the "v" of the object.
const CommentVersion = 1

// MaxCommentBytes is what is written at most: the column is a TEXT of 65535 bytes and cuts silently.
const MaxCommentBytes = 60000

var (
	// ErrNoComment says that the AdminComment holds nothing of ours.
	ErrNoComment = errors.New("admin comment has no vgpu part")
	// ErrCommentVersion says that a newer version has written our part.
	ErrCommentVersion = errors.New("admin comment was written by a newer version")
	// ErrCommentFull says that the column has no room for another node.
	ErrCommentFull = errors.New("admin comment has no room for another node")
)

// Comment is our part of an AdminComment.
type Comment struct {
	Version  int                       `json:"v"`
	Nodes    map[string][]CommentSlice `json:"nodes"`
	Refusals map[string]string         `json:"refusals,omitempty"`
}

// CommentSlice is one slice of one node. In the text its figures have the names of their tag comment.
type CommentSlice struct {
	GPU    device.UUID `json:"gpu"`
	MemMiB int64       `json:"mem_mib"`
	Cores  int         `json:"cores"` // 0: no cap
	usage.Figures
	Earlier []device.Limit `json:"earlier,omitempty"` // limits before the last one, which is cores and mem_mib
	Curve   string         `json:"curve,omitempty"`   // its use over time (curve.go), where there is room for it
	// Later are figures that a later build has counted.
	Later map[string]json.RawMessage `json:"-"`
}

// textForm has the fields of a CommentSlice, the same struct with the names that they have in the text, and those names.
type textForm struct {
	fields []reflect.StructField
	same   reflect.Type
	names  map[string]bool
}

// inText is made when it is first asked for: each prolog and epilog has this package, and seldom a text.
var inText = sync.OnceValue(func() textForm {
	form := textForm{names: map[string]bool{}}
	var named []reflect.StructField
	for _, f := range reflect.VisibleFields(reflect.TypeFor[CommentSlice]()) {
		if f.Anonymous || f.Tag.Get("json") == "-" {
			continue
		}
		form.fields = append(form.fields, f)
		tag := f.Tag
		if name, ok := tag.Lookup("comment"); ok {
			tag = reflect.StructTag(fmt.Sprintf("json:%q", name))
		}
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		form.names[name] = true
		named = append(named, reflect.StructField{Name: f.Name, Type: f.Type, Tag: tag})
	}
	form.same = reflect.StructOf(named)
	return form
})

// MarshalJSON is for the text.
func (s CommentSlice) MarshalJSON() ([]byte, error) {
	form := inText()
	text, slice := reflect.New(form.same).Elem(), reflect.ValueOf(s)
	for i, f := range form.fields {
		text.Field(i).Set(slice.FieldByIndex(f.Index))
	}
	part, err := marshal(text.Interface())
	later := maps.Clone(s.Later)
	maps.DeleteFunc(later, func(name string, _ json.RawMessage) bool { return form.names[name] })
	if err != nil || len(later) == 0 {
		return []byte(part), err
	}
	more, err := marshal(later)
	return []byte(strings.TrimSuffix(part, "}") + "," + more[1:]), err
}

// UnmarshalJSON is its reverse.
func (s *CommentSlice) UnmarshalJSON(data []byte) error {
	form := inText()
	text, slice := reflect.New(form.same), reflect.ValueOf(s).Elem()
	if err := json.Unmarshal(data, text.Interface()); err != nil {
		return err
	}
	for i, f := range form.fields {
		slice.FieldByIndex(f.Index).Set(text.Elem().Field(i))
	}
	s.Later = usage.FiguresBesides(data, form.names)
	return nil
}

// ParseComment finds our part in an AdminComment.
func ParseComment(text string) (Comment, error) {
	_, comment, err := parseComment(text)
	return comment, err
}

// parseComment also returns the whole object, nil if the text is none.
func parseComment(text string) (map[string]json.RawMessage, Comment, error) {
	object := asObject(text)
	part, ok := object["vgpu"]
	if !ok {
		return object, Comment{}, ErrNoComment
	}
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(part, &version); err != nil || version.V < 1 {
		return object, Comment{}, ErrNoComment
	}
	if version.V > CommentVersion {
		return object, Comment{}, fmt.Errorf("%w: %d", ErrCommentVersion, version.V)
	}
	var comment Comment
	if err := json.Unmarshal(part, &comment); err != nil {
		return object, Comment{}, ErrNoComment
	}
	for _, slices := range comment.Nodes {
		for i := range slices {
			slices[i].GPU = upperPrefix(slices[i].GPU)
		}
	}
	return object, comment, nil
}

func asObject(text string) map[string]json.RawMessage {
	for _, candidate := range []string{text, strings.ReplaceAll(text, "`", `"`)} {
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(candidate), &object) == nil && object != nil {
			return object
		}
	}
	return nil
}

// upperPrefix undoes sacctmgr's lower case; the hexadecimal rest of a UUID is lower-case anyway.
func upperPrefix(uuid device.UUID) device.UUID {
	if prefix, rest, ok := strings.Cut(string(uuid), "-"); ok && (prefix == "gpu" || prefix == "mig") {
		return device.UUID(strings.ToUpper(prefix) + "-" + rest)
	}
	return uuid
}

// Merge puts a record's part into an AdminComment and returns the new text. The parts of other nodes
// and what others have written stay.
func Merge(existing string, rec usage.Record) (string, error) {
	object, comment, err := parseComment(existing)
	if errors.Is(err, ErrCommentVersion) {
		return "", err
	}
	if object == nil {
		object = make(map[string]json.RawMessage)
		if existing != "" && !strings.HasPrefix(existing, slurm.WaitsPrefix) { // what it waited for is over
			text, err := marshal(existing)
			if err != nil {
				return "", fmt.Errorf("merge admin comment: %w", err)
			}
			object["text"] = json.RawMessage(text)
		}
	}
	comment.Version = CommentVersion
	if comment.Nodes == nil {
		comment.Nodes = make(map[string][]CommentSlice)
	}
	for node := range comment.Nodes {
		if strings.EqualFold(node, rec.Node) {
			delete(comment.Nodes, node)
		}
	}
	for node := range comment.Refusals {
		if strings.EqualFold(node, rec.Node) {
			delete(comment.Refusals, node)
		}
	}
	if rec.Refusal != "" {
		if comment.Refusals == nil {
			comment.Refusals = make(map[string]string)
		}
		comment.Refusals[rec.Node] = rec.Refusal
	} else {
		comment.Nodes[rec.Node] = slicesOf(rec)
		addCurves(comment.Nodes[rec.Node], rec)
	}
	merged, err := write(object, comment)
	if err == nil && len(merged) > maxCurvesBytes { // the time lines of the first nodes to report have room
		comment.withoutCurves(rec.Node)
		merged, err = write(object, comment)
	}
	if err == nil && len(merged) > MaxCommentBytes {
		comment.withoutCurves(slices.Collect(maps.Keys(comment.Nodes))...)
		merged, err = write(object, comment)
	}
	if err != nil {
		return "", fmt.Errorf("merge admin comment: %w", err)
	}
	if len(merged) > MaxCommentBytes {
		return "", fmt.Errorf("%w: %d bytes", ErrCommentFull, len(merged))
	}
	return merged, nil
}

// write is the text of the whole object with our part in it.
func write(object map[string]json.RawMessage, comment Comment) (string, error) {
	part, err := marshal(comment)
	if err != nil {
		return "", err
	}
	object["vgpu"] = json.RawMessage(part)
	return marshal(object)
}

// marshal keeps <, > and & as they are: sacct prints the text as it stands.
func marshal(object any) (string, error) {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

func slicesOf(rec usage.Record) []CommentSlice {
	slices := make([]CommentSlice, 0, len(rec.Devices))
	for i, d := range rec.Devices {
		slices = append(slices, CommentSlice{GPU: d.Device, MemMiB: d.MemMiB, Cores: d.SMPercent, Figures: d.Figures, Earlier: d.Earlier, Later: rec.LaterFigures(i)})
	}
	return slices
}

// Stands says whether a record's part is in an AdminComment as Merge would write it.
func Stands(text string, rec usage.Record) bool {
	comment, err := ParseComment(text)
	if err != nil {
		return false
	}
	if rec.Refusal != "" {
		for node, refusal := range comment.Refusals {
			if strings.EqualFold(node, rec.Node) {
				return strings.EqualFold(unquote(refusal), unquote(rec.Refusal))
			}
		}
		return false
	}
	want := slicesOf(rec)
	for node, got := range comment.Nodes {
		if !strings.EqualFold(node, rec.Node) || len(got) != len(want) {
			continue
		}
		for i := range got {
			if !strings.EqualFold(string(got[i].GPU), string(want[i].GPU)) {
				return false
			}
			got[i].GPU, got[i].Curve, got[i].Later = want[i].GPU, want[i].Curve, want[i].Later
			if !reflect.DeepEqual(got[i], want[i]) {
				return false
			}
		}
		return true
	}
	return false
}

// unquote makes texts comparable that sacctmgr may have changed.
func unquote(text string) string { return strings.NewReplacer("`", "", `"`, "", "'", "").Replace(text) }

// NodeNames are the nodes that the comment is about, in order.
func (c Comment) NodeNames() []string {
	all := maps.Clone(c.Refusals)
	if all == nil {
		all = make(map[string]string)
	}
	for node := range c.Nodes {
		all[node] = ""
	}
	return slices.Sorted(maps.Keys(all))
}
