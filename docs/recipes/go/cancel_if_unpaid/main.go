// Cancel if unpaid: an order that is not paid in time is cancelled.
//
//	cancel_if_unpaid BROKERS TOPIC [DELAY_MS]
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
	delay  = "30000"
	client *kgo.Client
	state  = map[string]string{} // Stands for your database: order -> "open", "paid" or "cancelled".
)

// The key takes all records of one order to one partition.
func send(order, name, value string) {
	check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(order), Value: []byte(order), Headers: []kgo.RecordHeader{
		{Key: "x-schedule-id", Value: []byte(order)}, {Key: name, Value: []byte(value)}}}).FirstErr())
}

func place(order string) {
	// The timeout first: a crash in between leaves a timeout without an order, which does nothing.
	// The other way round it would leave an order that is never cancelled.
	send(order, "x-delay", delay)
	state[order] = "open"
}

func pay(order string, crash bool) {
	// The database first, and it decides: it refuses an order that is cancelled already.
	if state[order] != "open" {
		log.Fatalf("%s is %s", order, state[order])
	}
	state[order] = "paid"
	if !crash {
		send(order, "x-schedule-action", "cancel")
	}
}

func onTimeout(order string) {
	// One conditional update, so that a payment at the same moment wins or loses as a whole:
	// UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
	switch state[order] {
	case "open":
		state[order] = "cancelled"
		fmt.Printf("%s: not paid in time, cancelled\n", order)
	case "":
		fmt.Printf("%s: never placed, nothing to do\n", order)
	default:
		fmt.Printf("%s: %s, nothing to do\n", order, state[order])
	}
}

func main() {
	if len(os.Args) > 3 {
		delay = os.Args[3]
	}
	var err error
	client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumerGroup("order-timeouts"),
		kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	check(err)
	defer client.Close()

	for _, order := range []string{"order-1", "order-2", "order-3"} {
		place(order)
	}
	pay("order-2", false) // Its timeout never comes.
	pay("order-3", true)  // Its timeout comes, and finds that it is paid.

	for left := 2; left > 0; { // A service would run for ever.
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			onTimeout(string(record.Value))
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
