// Rate limiting: however fast records come in, they are delivered at most so many a second.
//
//	rate_limit BROKERS TOPIC [PER_SECOND [HORIZON_MS]]
//
// Uses the topics TOPIC and TOPIC.paced. TOPIC has one partition, so that there is one pacer.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx      = context.Background()
	topic    = os.Args[2]
	interval = time.Second / 2
	horizon  = 5 * time.Second
	client   *kgo.Client
	slot     time.Time
)

// The pacer gives each record the next free slot, at most a horizon ahead.
func pace(record *kgo.Record) {
	if slot = slot.Add(interval); slot.Before(time.Now()) {
		slot = time.Now()
	}
	time.Sleep(time.Until(slot.Add(-horizon)))
	// With an id, a crash before the commit gives it a new slot instead of a second one.
	send(&kgo.Record{Topic: topic + ".paced", Key: record.Key, Value: record.Value, Headers: []kgo.RecordHeader{
		{Key: "x-deliver-at", Value: []byte(strconv.FormatInt(slot.UnixMilli(), 10))},
		{Key: "x-schedule-id", Value: []byte(fmt.Sprintf("%d/%d", record.Partition, record.Offset))}}})
}

// Everything goes to partition 0, so that an id is known there.
func send(record *kgo.Record) {
	check(client.ProduceSync(ctx, record).FirstErr())
}

func main() {
	if len(os.Args) > 3 {
		perSecond, _ := strconv.ParseFloat(os.Args[3], 64)
		interval = time.Duration(float64(time.Second) / perSecond)
	}
	if len(os.Args) > 4 {
		horizon, _ = time.ParseDuration(os.Args[4] + "ms")
	}
	// One loop for both, to keep it short. In a service the pacer and the worker are two programs.
	var err error
	client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumerGroup("pacer"),
		kgo.ConsumeTopics(topic, topic+".paced"), kgo.DisableAutoCommit(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	check(err)
	defer client.Close()
	// It forgets its slots when it ends; so it begins behind all those that one before it may have given.
	slot = time.Now().Add(horizon)

	mails := 5
	for mail := 1; mail <= mails; mail++ {
		send(&kgo.Record{Topic: topic, Key: []byte(fmt.Sprintf("customer-%d", mail)), Value: []byte(fmt.Sprintf("mail %d", mail))})
	}
	var slots []int64
	for len(slots) < mails {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			if record.Topic == topic {
				pace(record)
			} else {
				fmt.Printf("%s\n", record.Value)
				for _, header := range record.Headers {
					if header.Key == "x-scheduled-for" {
						due, _ := strconv.ParseInt(string(header.Value), 10, 64)
						slots = append(slots, due)
					}
				}
			}
			check(client.CommitRecords(ctx, record))
		}
	}
	for i := 1; i < mails; i++ {
		if gap := slots[i] - slots[i-1]; gap < interval.Milliseconds() {
			log.Fatalf("%d ms between two mails", gap)
		}
	}
	fmt.Println("the rate was kept")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
