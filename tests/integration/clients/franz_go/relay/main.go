// franz-go as a producer beside the relay, for tests/relay/clients_with_kafka.py:
//
//	go run ./relay BROKERS TOPIC
//
// It reads groups of records from its input, and prints "ok" when one is acknowledged and its transaction has ended:
// RelayClient.java, which does the same, says what they look like.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("give BROKERS TOPIC")
	}
	brokers, topic := os.Args[1], os.Args[2]
	input := bufio.NewReader(os.Stdin)
	for groups := 0; ; groups++ {
		head, isThere := read(input)
		if !isThere {
			return
		}
		var records []*kgo.Record
		for line, _ := read(input); line != ""; line, _ = read(input) {
			records = append(records, parse(topic, strings.Split(line, " ")))
		}
		codec, outcome, _ := strings.Cut(head, " ")
		send(brokers, codec, outcome, fmt.Sprintf("%s-franz-go-%d", topic, groups), records)
		fmt.Println("ok")
	}
}

func read(input *bufio.Reader) (string, bool) {
	line, err := input.ReadString('\n')
	if err == io.EOF {
		return "", false
	}
	check(err)
	return strings.TrimSuffix(line, "\n"), true
}

func parse(topic string, words []string) *kgo.Record {
	record := &kgo.Record{Topic: topic, Key: decode(words[0]), Value: decode(words[1])}
	for i := 2; i < len(words); i += 2 {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: string(decode(words[i])), Value: decode(words[i+1])})
	}
	return record
}

func send(brokers, codec, outcome, transactionalID string, records []*kgo.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.ProducerBatchCompression(codecs[codec]),
		// The records of a group are in few batches, so that the codec has something to do.
		kgo.ProducerLinger(100 * time.Millisecond)}
	isTransaction := outcome != "-"
	if isTransaction {
		options = append(options, kgo.TransactionalID(transactionalID))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	if isTransaction {
		check(client.BeginTransaction())
	}
	// It waits until all are in the log, also those of a transaction that aborts.
	check(client.ProduceSync(ctx, records...).FirstErr())
	if isTransaction {
		check(client.EndTransaction(ctx, kgo.TransactionEndTry(outcome == "commit")))
	}
}

func decode(word string) []byte {
	if word == "-" {
		return nil
	}
	bytes, err := base64.StdEncoding.DecodeString(word[1:])
	check(err)
	return bytes
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
