// Retry with back-off: a record that cannot be handled is handled again later, and put aside in the end.
//
//	retry BROKERS TOPIC [FIRST_DELAY_MS]
//
// Uses the topics TOPIC, TOPIC.retry and TOPIC.dead, with the same number of partitions.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const maxTries = 3
const cut = 500 // How much of a reason is sent, and of a key and a value that are too large.

var (
	ctx          = context.Background()
	topic        = os.Args[2]
	firstDelayMs = 1000
	hopeless     = errors.New("not an order")
)

// What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these.
var scheduling = regexp.MustCompile(`(?i)^x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)$`)

// Your work. It has to be idempotent: a crash before the commit repeats it.
func handle(order string, tries int) error {
	if order == "" || order == "nonsense" {
		return hopeless
	}
	if order == "order 3" || order == "order 2" && tries == 1 {
		return errors.New("the bank does not answer")
	}
	return nil
}

// Returns when the record is durable, or tells that it is too large. A program that gets no answer for ten seconds ends; the client alone would try for ever.
func send(producer *kgo.Client, record *kgo.Record) (tooLarge bool) {
	answer := make(chan error, 1)
	producer.Produce(ctx, record, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		if tooLarge = errors.Is(err, kerr.MessageTooLarge); !tooLarge {
			check(err)
		}
	case <-time.After(10 * time.Second):
		log.Fatal("no answer from the broker")
	}
	return tooLarge
}

// Sends the record on with its own headers and ours. The caller commits only after that.
func tryAgainOrPutAside(producer *kgo.Client, record *kgo.Record, tries int, problem error) (again bool) {
	// The id names the record that failed first. If we crash before the commit and come here again,
	// the second copy replaces the first instead of joining it.
	origin := ours(record, "retry-origin", fmt.Sprintf("%s/%d/%d", record.Topic, record.Partition, record.Offset))
	// The partition is the same too: an id belongs to its partition, and a record may have no key.
	copied := &kgo.Record{Topic: topic + ".dead", Partition: record.Partition, Key: record.Key, Value: record.Value}
	add := func(name, value string) {
		copied.Headers = append(copied.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	for _, theirs := range record.Headers {
		switch name := theirs.Key; {
		case name == "retry-origin", name == "retry-tries", name == "retry-error", scheduling.MatchString(name):
		default:
			copied.Headers = append(copied.Headers, theirs)
		}
	}
	add("retry-origin", origin)
	add("retry-tries", strconv.Itoa(tries))
	// An error text may be of any length, and need not be UTF-8; it is not where a letter was cut.
	reason := strings.ToValidUTF8(string(start([]byte(problem.Error()))), "?")
	add("retry-error", reason)
	if again = tries < maxTries && problem != hopeless; again {
		copied.Topic = topic + ".retry"
		delay := float64(firstDelayMs<<(tries-1)) * (1 + rand.Float64()/4) // Not all at once after an outage.
		add("x-schedule-id", origin)
		add("x-delay", strconv.Itoa(int(delay)))
	}
	if send(producer, copied) {
		// The topic takes no record of this size. The beginning of the value goes into a header, so that nobody takes it
		// for the whole; the whole is where retry-origin says.
		again = false
		copied = &kgo.Record{Topic: topic + ".dead", Partition: record.Partition, Key: start(record.Key)}
		add("retry-origin", origin)
		add("retry-tries", strconv.Itoa(tries))
		add("retry-error", "too large to be sent on: "+reason)
		add("retry-cut", string(start(record.Value)))
		if send(producer, copied) {
			log.Fatal("the dead letter topic takes no record of a few hundred bytes")
		}
	}
	fmt.Printf("%s: try %d failed, %s\n", record.Value, tries, map[bool]string{true: "again later", false: "put aside"}[again])
	return again
}

func main() {
	if len(os.Args) > 3 {
		firstDelayMs, _ = strconv.Atoi(os.Args[3])
	}
	brokers := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	client, err := kgo.NewClient(brokers, kgo.ConsumerGroup("billing"), kgo.ConsumeTopics(topic, topic+".retry"), kgo.DisableAutoCommit())
	check(err)
	defer client.Close()
	// What a topic took has to be sent on: the client's own limit would be lower than the topic's.
	copier, err := kgo.NewClient(brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(32<<20))
	check(err)
	defer copier.Close()

	left := 0 // A service would run for ever.
	for _, order := range []string{"order 1", "order 2", "order 3", "nonsense"} {
		check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(order), Value: []byte(order)}).FirstErr())
		left++
	}
	for left > 0 {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			tried, _ := strconv.ParseUint(ours(record, "retry-tries", "0"), 10, 8) // 0 if it is no number.
			tries, again := int(tried)+1, false
			if problem := handle(string(record.Value), tries); problem != nil {
				again = tryAgainOrPutAside(copier, record, tries, problem)
			} else {
				fmt.Printf("%s: done at try %d\n", record.Value, tries)
			}
			check(client.CommitRecords(ctx, record))
			if !again {
				left--
			}
		}
	}
}

func start(bytes []byte) []byte {
	if len(bytes) > cut {
		return bytes[:cut]
	}
	return bytes
}

// Only in the retry topic are these headers ours; elsewhere somebody else may use the same names.
func ours(record *kgo.Record, name, otherwise string) string {
	for _, each := range record.Headers {
		if each.Key == name && len(each.Value) > 0 && record.Topic == topic+".retry" {
			return string(each.Value)
		}
	}
	return otherwise
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
