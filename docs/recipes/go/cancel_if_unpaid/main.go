// Cancel if unpaid: an order that is not paid in time is cancelled.
//
//	cancel_if_unpaid BROKERS TOPIC [DELAY_MS]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx    = context.Background()
	topic  = os.Args[2]
	delay  = "30000"
	client *kgo.Client
	state  = map[string]string{} // Stands for your database: order -> "open", "paid", "cancelled" or "to be refunded".
)

// The key takes all records of one order to one partition.
func send(order, name, value string) {
	check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(order), Value: []byte(order), Headers: []kgo.RecordHeader{
		{Key: "x-schedule-id", Value: []byte(order)}, {Key: name, Value: []byte(value)}}}).FirstErr())
}

func place(order string) {
	// The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
	if state[order] != "" {
		return
	}
	// The timeout first: a crash in between leaves a timeout without an order, which does nothing.
	// The other way round it would leave an order that is never cancelled.
	send(order, "x-delay", delay)
	state[order] = "open" // INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING
}

func pay(order string, crash bool) error {
	// The database first, and it decides: UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'open'
	if state[order] == "open" {
		state[order] = "paid"
	}
	switch state[order] {
	case "":
		return fmt.Errorf("%s is not placed yet", order) // Try again later.
	case "paid":
		// Also when the event comes again: the program may have crashed here.
		if !crash {
			send(order, "x-schedule-action", "cancel")
		}
	case "cancelled":
		state[order] = "to be refunded"
		fmt.Printf("%s: paid too late, to be refunded\n", order)
	}
	return nil
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
	running, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	var err error
	client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumerGroup("order-timeouts"),
		kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	check(err)
	defer client.Close()

	for _, order := range []string{"order-1", "order-2", "order-3"} {
		place(order)
	}
	check(pay("order-2", false)) // Its timeout never comes.
	check(pay("order-3", true))  // Its timeout comes, and finds that it is paid.
	check(pay("order-2", false)) // Both events come again, and change nothing.
	place("order-2")

	for left := 2; left > 0; { // A service would run until it is stopped.
		fetches := client.PollFetches(running)
		if running.Err() != nil {
			return // Close() leaves the group, so that the other members need not wait for a timeout.
		}
		check(fetches.Err())
		for _, record := range fetches.Records() {
			onTimeout(string(record.Value))
			check(client.CommitRecords(ctx, record))
			left--
		}
	}
	check(pay("order-1", false))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
