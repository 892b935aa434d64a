"""Dead letters: shows what was put aside, and puts it back when the cause is gone.

    python3 dead_letters.py BROKERS TOPIC COUNT [GAP_MS]

Moves COUNT records from TOPIC.dead to TOPIC.retry, from where retry.py takes them, one every GAP_MS.
"""

import re
import sys

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
gap_ms = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
# What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these.
scheduling = re.compile("x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)", re.IGNORECASE)

# What a topic took has to be sent on: the client's own limit would be lower than the topic's.
producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random",
                     "message.timeout.ms": 10000, "message.max.bytes": 32 << 20})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "put-back", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})


def text(value):
    return (value or b"").decode(errors="replace")


def send(*args, **record):
    """Returns when the record is durable, or raises."""
    errors = []
    producer.produce(*args, **record, on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


consumer.subscribe([f"{topic}.dead"])
done = 0
while done < count:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    headers = {name: value for name, value in record.headers() or [] if not scheduling.fullmatch(name)}
    tries, error, origin = (text(headers.get(name)) for name in ("retry-tries", "retry-error", "retry-origin"))
    # Without "retry-tries" it begins at its first try. With the same id, a crash before the commit puts it back
    # once, unless the first copy has been delivered by then.
    for name in ("retry-tries", "retry-error"):
        headers.pop(name, None)
    origin = origin or f"{record.topic()}/{record.partition()}/{record.offset()}"
    headers |= {"x-schedule-id": origin, "x-delay": str(done * gap_ms)}
    send(f"{topic}.retry", partition=record.partition(), key=record.key(), value=record.value(), headers=headers)
    consumer.commit(record, asynchronous=False)
    print(f"{text(record.value())}: put back (tries: {tries}; {error})", flush=True)
    done += 1
consumer.close()
