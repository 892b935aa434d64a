// franz-go over SASL_SSL, by hand: logs in by SCRAM-SHA-512 and by PLAIN, sends a record each time and reads all of them.
//
//	cd tests/integration/clients/franz_go
//	go run . localhost:9093 ca.crt USER PASSWORD TOPIC
//
// The last line is "sent 2, read N".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func main() {
	if len(os.Args) != 6 {
		log.Fatal("give BROKER CA USER PASSWORD TOPIC")
	}
	broker, ca, user, password, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	pem, err := os.ReadFile(ca)
	check(err)
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(pem) {
		log.Fatalf("%s has no certificate", ca)
	}
	mechanisms := []sasl.Mechanism{
		scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
		plain.Auth{User: user, Pass: password}.AsMechanism(),
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	read := 0
	for _, mechanism := range mechanisms {
		client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.SASL(mechanism), kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
			kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		check(err)
		sent, err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(mechanism.Name())}).First()
		if err != nil {
			log.Fatalf("%s: %v", mechanism.Name(), err)
		}
		for read = 0; int64(read) <= sent.Offset; {
			fetches := client.PollFetches(ctx)
			check(fetches.Err())
			read += fetches.NumRecords()
		}
		client.Close()
	}
	fmt.Printf("sent %d, read %d\n", len(mechanisms), read)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
