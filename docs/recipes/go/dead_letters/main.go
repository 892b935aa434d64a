// Dead letters: shows what was put aside, and puts it back when the cause is gone.
//
//	dead_letters BROKERS TOPIC COUNT [GAP_MS]
//
// Moves COUNT records from TOPIC.dead to TOPIC.retry, from where retry takes them, one every GAP_MS.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these.
var scheduling = regexp.MustCompile(`(?i)^x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)$`)

func main() {
	topic, gapMs := os.Args[2], 1000
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	if len(os.Args) > 4 {
		gapMs, _ = strconv.Atoi(os.Args[4])
	}
	ctx := context.Background()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ConsumerGroup("put-back"),
		kgo.ConsumeTopics(topic+".dead"), kgo.DisableAutoCommit(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// What a topic took has to be sent on: the client's own limit would be lower than the topic's.
		kgo.ProducerBatchMaxBytes(32<<20))
	check(err)
	defer client.Close()

	for done := 0; done < count; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			if done == count {
				break // Not committed, so it stays.
			}
			// Without "retry-tries" it begins at its first try. With the same id, a crash before the commit puts it back
			// once, unless the first copy has been delivered by then.
			copied := &kgo.Record{Topic: topic + ".retry", Partition: record.Partition, Key: record.Key, Value: record.Value}
			known := map[string]string{}
			origin := fmt.Sprintf("%s/%d/%d", record.Topic, record.Partition, record.Offset)
			for _, each := range record.Headers {
				known[each.Key] = string(each.Value)
				if name := each.Key; name != "retry-tries" && name != "retry-error" && !scheduling.MatchString(name) {
					copied.Headers = append(copied.Headers, each)
				}
			}
			if known["retry-origin"] != "" {
				origin = known["retry-origin"]
			}
			copied.Headers = append(copied.Headers,
				kgo.RecordHeader{Key: "x-schedule-id", Value: []byte(origin)},
				kgo.RecordHeader{Key: "x-delay", Value: []byte(strconv.Itoa(done * gapMs))})
			check(client.ProduceSync(ctx, copied).FirstErr())
			check(client.CommitRecords(ctx, record))
			fmt.Printf("%s: put back (tries: %s; %s)\n", record.Value, known["retry-tries"], known["retry-error"])
			done++
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
