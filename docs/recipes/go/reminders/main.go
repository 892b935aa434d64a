// Reminders: at a time of the calendar; moved and cancelled by id; dropped when they would come too late.
//
//	reminders BROKERS TOPIC [SECONDS]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx    = context.Background()
	topic  = os.Args[2]
	client *kgo.Client
)

func send(visit string, text []byte, headers ...kgo.RecordHeader) {
	headers = append(headers, kgo.RecordHeader{Key: "x-schedule-id", Value: []byte(visit)})
	check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(visit), Value: text, Headers: headers}).FirstErr())
}

// The same call sets a reminder and moves it: the same id replaces what is pending.
func remind(visit, text string, at, visitAt time.Time) {
	send(visit, []byte(text),
		kgo.RecordHeader{Key: "x-deliver-at", Value: []byte(at.Format(time.RFC3339Nano))}, // With its offset from UTC.
		kgo.RecordHeader{Key: "x-expire-at", Value: []byte(visitAt.Format(time.RFC3339Nano))})
}

func forget(visit string) {
	send(visit, nil, kgo.RecordHeader{Key: "x-schedule-action", Value: []byte("cancel")})
}

func main() {
	soon := 10 * time.Second
	if len(os.Args) > 3 {
		soon, _ = time.ParseDuration(os.Args[3] + "s")
	}
	var err error
	client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumerGroup("reminders"),
		kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	check(err)
	defer client.Close()

	now := time.Now()
	remind("visit-1", "your visit is today", now.Add(soon), now.Add(time.Hour))
	remind("visit-2", "your visit is tomorrow", now.Add(time.Hour), now.Add(2*time.Hour))
	remind("visit-2", "your visit was moved to today", now.Add(2*soon), now.Add(time.Hour)) // Moved.
	remind("visit-3", "your visit is today", now.Add(soon), now.Add(time.Hour))
	forget("visit-3")

	reminded := map[string]bool{} // Stands for your database.
	for left := 2; left > 0; {    // A service would run for ever.
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			// A crash before the commit repeats the record. Its handle tells that it is the same one.
			for _, header := range record.Headers {
				if header.Key == "x-schedule-handle" && !reminded[string(header.Value)] {
					fmt.Printf("%s: %s\n", record.Key, record.Value)
					reminded[string(header.Value)] = true
				}
			}
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
