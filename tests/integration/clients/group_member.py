"""One member of a consumer group:

    group_member.py confluent|confluent-cooperative|kafka-python BROKERS TOPIC GROUP DIE_AFTER

Each record is committed first and printed then, as one line "partition offset value"; a commit that
is refused is not printed, the record comes again to whoever has the partition. After DIE_AFTER lines
(0: never) the process kills itself, between two records. On SIGTERM it leaves the group. The
cooperative one prints "kept N of M" too, when it gives up some of its M partitions.
"""

import os
import signal
import sys

library, brokers, topic, group, die_after = sys.argv[1:]
die_after, lines, going = int(die_after), 0, True


def end(*_):
    global going
    going = False


def done(partition, offset, value):
    global lines
    print(partition, offset, value.decode(), flush=True)
    lines += 1
    if lines == die_after:
        os.kill(os.getpid(), signal.SIGKILL)


signal.signal(signal.SIGTERM, end)

if library.startswith("confluent"):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    cooperative = library == "confluent-cooperative"

    def assigned(consumer, partitions):
        if cooperative:
            consumer.incremental_assign(partitions)  # These come to what it has.
        print("assigned", flush=True)

    def revoked(consumer, partitions):
        had = len(consumer.assignment())
        consumer.incremental_unassign(partitions)
        if going:
            print(f"kept {had - len(partitions)} of {had}", flush=True)

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False,
                         "auto.offset.reset": "earliest", "session.timeout.ms": 3000, "heartbeat.interval.ms": 300,
                         "fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 500,
                         "partition.assignment.strategy": "cooperative-sticky" if cooperative else "range,roundrobin"})
    consumer.subscribe([topic], on_assign=assigned, **({"on_revoke": revoked} if cooperative else {}))
    while going:
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            print(error, file=sys.stderr)
            if cooperative:  # The partition may stay ours through a rebalance: nobody else begins at this record.
                try:
                    consumer.seek(TopicPartition(topic, message.partition(), message.offset()))
                except KafkaException as gone:
                    print(gone, file=sys.stderr)
            continue
        done(message.partition(), message.offset(), message.value())
    consumer.close()
else:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    class Told(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            pass

        def on_partitions_assigned(self, assigned):
            print("assigned", flush=True)

    consumer = KafkaConsumer(bootstrap_servers=brokers, group_id=group, enable_auto_commit=False,
                             auto_offset_reset="earliest", session_timeout_ms=3000, heartbeat_interval_ms=300,
                             max_poll_records=1, fetch_max_wait_ms=100, consumer_timeout_ms=200)
    consumer.subscribe([topic], listener=Told())
    while going:
        for message in consumer:
            place = TopicPartition(message.topic, message.partition)
            try:
                consumer.commit({place: OffsetAndMetadata(message.offset + 1, "")})
            except KafkaError as error:
                print(error, file=sys.stderr)
                break
            done(message.partition, message.offset, message.value)
            if not going:
                break
    consumer.close(autocommit=False)
