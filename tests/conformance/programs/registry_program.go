// The registry client of franz-go, which rpk uses: its calls, with results as JSON.
// Arguments: the registry's URL, a subject.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	plain  = `{"type":"record","name":"GoPlain","fields":[{"name":"a","type":"string"}]}`
	broken = `{"type":"record","name":"GoPlain","fields":[{"name":"a","type":"int"}]}`
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func code(err error) int {
	var refused *sr.ResponseError
	if errors.As(err, &refused) {
		return refused.ErrorCode
	}
	return 0
}

func main() {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check(err)
	subject := os.Args[2]
	created, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: plain})
	check(err)
	byID, err := client.SchemaByID(ctx, created.ID)
	check(err)
	latest, err := client.SchemaByVersion(ctx, subject, -1)
	check(err)
	checked, err := client.CheckCompatibility(ctx, subject, -1, sr.Schema{Schema: broken})
	check(err)
	_, conflict := client.CreateSchema(ctx, subject, sr.Schema{Schema: broken})
	levels := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, subject)
	check(levels[0].Err)
	modes := client.Mode(ctx, subject)
	_, missing := client.SchemaByVersion(ctx, subject, 9)
	deleted, err := client.DeleteSubject(ctx, subject, sr.SoftDelete)
	check(err)
	purged, err := client.DeleteSubject(ctx, subject, sr.HardDelete)
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"schema":     byID.Schema,
		"version":    latest.Version,
		"compatible": checked.Is,
		"conflict":   code(conflict),
		"level":      levels[0].Level.String(),
		"mode":       code(modes[0].Err),
		"missing":    code(missing),
		"deleted":    deleted,
		"purged":     purged,
	}))
}
