// Cancel if unpaid: an order that is not paid in time is cancelled.
//
//	cancel_if_unpaid BROKERS TOPIC [DELAY_MS [FILE]]
//
// TOPIC has all events of all orders, each with its order as key: "placed", "paid", and the "timeout" that this program sends.
// With FILE, which stands for your database, it is a service: it handles what others send, until SIGTERM or Ctrl-C. Without FILE
// it plays the shop too, and ends by itself.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx    = context.Background()
	topic  = os.Args[2]
	delay  = "30000"
	file   string
	client *kgo.Client
	state  = map[string]string{} // Order -> "open", "paid", "cancelled" or "to be refunded".
)

func store(order, what string) {
	state[order] = what
	if file != "" {
		text, _ := json.Marshal(state)
		check(os.WriteFile(file, text, 0o600))
	}
}

// Returns when the record is durable. A program that gets no answer for ten seconds ends; the client alone would try for ever.
func send(record *kgo.Record) {
	answer := make(chan error, 1)
	client.Produce(ctx, record, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		check(err)
	case <-time.After(10 * time.Second):
		log.Fatal("no answer from the broker")
	}
}

func schedule(order string, partition int32, event, name, value string) {
	send(&kgo.Record{Topic: topic, Partition: partition, Key: []byte(order), Value: []byte(event),
		Headers: []kgo.RecordHeader{{Key: "x-schedule-id", Value: []byte("order/" + order)}, {Key: name, Value: []byte(value)}}})
}

func place(order string, partition int32) {
	// The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
	if state[order] != "" {
		return
	}
	// The timeout first: a crash in between leaves a timeout without an order, which does nothing.
	// The other way round it would leave an order that is never cancelled.
	// In the partition of the other events, it is behind all payments that came before it was due.
	schedule(order, partition, "timeout", "x-delay", delay)
	store(order, "open") // INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING
}

func pay(order string, partition int32) {
	// The database first, and it decides: INSERT INTO orders VALUES (?, 'paid')
	// ON CONFLICT (id) DO UPDATE SET state = 'paid' WHERE orders.state = 'open'
	if state[order] == "" || state[order] == "open" {
		store(order, "paid")
	}
	switch state[order] {
	case "paid":
		// Also when the event comes again: the program may have crashed here.
		schedule(order, partition, "", "x-schedule-action", "cancel")
	case "cancelled":
		store(order, "to be refunded")
		fmt.Printf("%s: paid too late, to be refunded\n", order)
	}
}

func onTimeout(order string) {
	// One conditional update, so that a payment at the same moment wins or loses as a whole:
	// UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
	switch state[order] {
	case "open":
		store(order, "cancelled")
		fmt.Printf("%s: not paid in time, cancelled\n", order)
	case "":
		fmt.Printf("%s: never placed, nothing to do\n", order)
	default:
		fmt.Printf("%s: %s, nothing to do\n", order, state[order])
	}
}

func handle(record *kgo.Record) {
	order := string(record.Key)
	switch event := string(record.Value); {
	case len(order) == 0 || len(order) > 200 || !utf8.ValidString(order):
		// An id has at most 249 bytes of UTF-8. A timeout that is refused would stop all events behind this one for ever.
		fmt.Printf("an order of %d bytes, put aside\n", len(order))
	case event == "placed":
		place(order, record.Partition)
	case event == "paid":
		pay(order, record.Partition)
	case event == "timeout": // Others may send other events.
		onTimeout(order)
	}
}

// The key takes all events of one order to one partition.
func playShop(brokers kgo.Opt) {
	shop, err := kgo.NewClient(brokers)
	check(err)
	defer shop.Close()
	// Some events come twice, and change nothing. The timeout of order-2 never comes.
	for _, event := range []string{"order-1 placed", "order-2 placed", "order-2 paid", "order-2 paid", "order-2 placed"} {
		words := strings.Fields(event)
		check(shop.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(words[0]), Value: []byte(words[1])}).FirstErr())
	}
}

func main() {
	if len(os.Args) > 3 {
		delay = os.Args[3]
	}
	if len(os.Args) > 4 {
		file = os.Args[4]
		if text, err := os.ReadFile(file); !os.IsNotExist(err) {
			check(err)
			check(json.Unmarshal(text, &state))
		}
	}
	running, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	brokers := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	if file == "" {
		playShop(brokers)
	}
	var err error
	client, err = kgo.NewClient(brokers, kgo.ConsumerGroup("order-timeouts"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	check(err)
	defer client.Close()

	for file != "" || state["order-1"] != "cancelled" {
		fetches := client.PollRecords(running, 1)
		if running.Err() != nil {
			return // Close() leaves the group, so that the other members need not wait for a timeout.
		}
		check(fetches.Err())
		for _, record := range fetches.Records() {
			handle(record)
			check(client.CommitRecords(ctx, record))
		}
	}
	pay("order-1", 0)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
