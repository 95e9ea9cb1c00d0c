// Limited does one kind of work under a limit and prints what the application has seen, as JSON: how much was done,
// errors, the longest throttle time, whether a connection was closed from outside. Arguments: bootstrap address, client
// id, topic, work, and how much of it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const fetchBytes = 30_000

var large, small = make([]byte, 10_000), make([]byte, 10)

type limited struct {
	bootstrap, clientID, topic string
	count                      int

	mutex sync.Mutex
	ends  bool
	seen  seen
}

type seen struct {
	Done       int      `json:"done"`
	Errors     []string `json:"errors"`
	ThrottleMs int64    `json:"throttle_ms"`
	Closed     bool     `json:"closed"`
}

func (l *limited) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, _ bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.seen.ThrottleMs = max(l.seen.ThrottleMs, interval.Milliseconds())
}

func (l *limited) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.seen.Closed = l.seen.Closed || !l.ends
}

// with gives work a client, which ends afterwards.
func (l *limited) with(work func(*kgo.Client) error, options ...kgo.Opt) error {
	l.mutex.Lock()
	l.ends = false
	l.mutex.Unlock()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(l.bootstrap), kgo.ClientID(l.clientID),
		kgo.WithHooks(l), kgo.ProducerBatchMaxBytes(20_000), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	err = work(client)
	l.mutex.Lock()
	l.ends = true
	l.mutex.Unlock()
	return err
}

func (l *limited) produce(client *kgo.Client) error {
	records := make([]*kgo.Record, l.count)
	for i := range records {
		records[i] = &kgo.Record{Topic: l.topic, Value: large}
	}
	for _, result := range client.ProduceSync(context.Background(), records...) {
		if result.Err != nil {
			return result.Err
		}
		l.seen.Done++
	}
	return nil
}

func (l *limited) one(client *kgo.Client) error {
	err := client.ProduceSync(context.Background(), &kgo.Record{Topic: l.topic, Value: small}).FirstErr()
	if err == nil {
		l.seen.Done++
	}
	return err
}

func (l *limited) requests(client *kgo.Client) error {
	for range l.count {
		if err := l.one(client); err != nil {
			return err
		}
	}
	return nil
}

func (l *limited) connect() error {
	for range l.count {
		if err := l.with(l.one); err != nil {
			return err
		}
	}
	return nil
}

func (l *limited) consume(client *kgo.Client) error {
	for l.seen.Done < l.count {
		fetches := client.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return err
		}
		l.seen.Done += fetches.NumRecords()
	}
	return nil
}

// topics creates a topic that uses the quota up, and a second one as soon as it may.
func (l *limited) topics(client *kgo.Client) error {
	for number, partitions := range []int{l.count, 1} {
		for {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic = fmt.Sprintf("%s-%d", l.topic, number)
			topic.NumPartitions, topic.ReplicationFactor = int32(partitions), 1
			request := kmsg.NewPtrCreateTopicsRequest()
			request.Topics = append(request.Topics, topic)
			answer, err := request.RequestWith(context.Background(), client)
			if err != nil {
				return err
			}
			err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
			if err == nil {
				break
			}
			if err != kerr.ThrottlingQuotaExceeded {
				return err
			}
			l.seen.Errors = append(l.seen.Errors, kerr.ThrottlingQuotaExceeded.Message)
		}
		l.seen.Done++
	}
	return nil
}

func (l *limited) run(work string) error {
	switch work {
	case "produce":
		return l.with(l.produce)
	case "requests":
		return l.with(l.requests)
	case "connect":
		return l.connect()
	case "consume":
		start := map[string]map[int32]kgo.Offset{l.topic: {0: kgo.NewOffset().AtStart()}}
		return l.with(l.consume, kgo.ConsumePartitions(start), kgo.FetchMaxBytes(fetchBytes),
			kgo.FetchMaxPartitionBytes(fetchBytes))
	case "topics":
		return l.with(l.topics)
	}
	return fmt.Errorf("no work %s", work)
}

func main() {
	count, err := strconv.Atoi(os.Args[5])
	l := limited{bootstrap: os.Args[1], clientID: os.Args[2], topic: os.Args[3], count: count}
	l.seen.Errors = []string{}
	if err == nil {
		err = l.run(os.Args[4])
	}
	if err != nil {
		l.seen.Errors = append(l.seen.Errors, err.Error())
	}
	if err := json.NewEncoder(os.Stdout).Encode(&l.seen); err != nil {
		panic(err)
	}
}
