// Debounce: many changes, one record, when nothing has changed for a while.
//
//	debounce BROKERS TOPIC [QUIET_MS]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	topic, quiet := os.Args[2], "5000"
	if len(os.Args) > 3 {
		quiet = os.Args[3]
	}
	ctx := context.Background()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumerGroup("indexer"),
		kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	check(err)
	defer client.Close()

	// Replaces the pending record of the page, and so begins the quiet time again. The last value wins.
	changed := func(page, version string) {
		check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(page), Value: []byte(version), Headers: []kgo.RecordHeader{
			{Key: "x-schedule-id", Value: []byte(page)}, {Key: "x-delay", Value: []byte(quiet)}}}).FirstErr())
	}
	for version := 1; version <= 5; version++ {
		changed("page-1", fmt.Sprintf("version %d", version))
	}
	changed("page-2", "version 1")

	for left := 2; left > 0; { // A service would run for ever.
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			fmt.Printf("%s: index %s\n", record.Key, record.Value) // Repeated after a crash.
			check(client.CommitRecords(ctx, record))
			left--
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
