// Recurring reports: at the times of a cron expression, until it is cancelled.
//
//	recurring_reports BROKERS TOPIC [CRON]
//
// Two runs, and then it is cancelled: with '* * * * * *' (six fields: every second) that takes two seconds.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx    = context.Background()
	topic  = os.Args[2]
	client *kgo.Client
)

func send(report string, headers ...kgo.RecordHeader) {
	headers = append(headers, kgo.RecordHeader{Key: "x-schedule-id", Value: []byte(report)})
	record := &kgo.Record{Topic: topic, Key: []byte(report), Value: []byte(report), Headers: headers}
	check(client.ProduceSync(ctx, record).FirstErr())
}

func main() {
	cron := "0 8 * * MON-FRI"
	if len(os.Args) > 3 {
		cron = os.Args[3]
	}
	var err error
	client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumerGroup("reports"),
		kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	check(err)
	defer client.Close()

	// A service may do this at each start: the same id replaces the pending run, and the times stay those of the clock.
	for start := 0; start < 2; start++ {
		send("sales", kgo.RecordHeader{Key: "x-cron", Value: []byte(cron)},
			kgo.RecordHeader{Key: "x-cron-tz", Value: []byte("Europe/Berlin")})
	}

	written := map[string]bool{} // Stands for your database: the runs whose report is written.
	for len(written) < 2 {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			// All runs have the same handle; the due time tells them apart, and says which time the report is about.
			for _, header := range record.Headers {
				if run := string(header.Value); header.Key == "x-scheduled-for" && !written[run] && len(written) < 2 {
					written[run] = true
					fmt.Printf("%s: report %d\n", record.Value, len(written))
				}
			}
			check(client.CommitRecords(ctx, record))
		}
	}
	send("sales", kgo.RecordHeader{Key: "x-schedule-action", Value: []byte("cancel")})
	fmt.Println("sales: no more reports")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
