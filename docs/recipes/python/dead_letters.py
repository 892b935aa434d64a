"""Dead letters: shows what was put aside, and puts it back when the cause is gone.

    python3 dead_letters.py BROKERS TOPIC COUNT [GAP_MS]

Moves COUNT records from TOPIC.dead to TOPIC.retry, from where retry.py takes them, one every GAP_MS.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
gap_ms = int(sys.argv[4]) if len(sys.argv) > 4 else 1000

producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random"})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "put-back", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})


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
    headers = dict(record.headers() or [])
    value, tries, error = record.value().decode(), headers.pop("tries").decode(), headers.pop("error").decode()
    # Without "tries" it begins at its first try. With the same id, a crash before the commit puts it back
    # once, unless the first copy has been delivered by then.
    headers |= {"x-schedule-id": headers["origin"], "x-delay": str(done * gap_ms)}
    send(f"{topic}.retry", partition=record.partition(), key=record.key(), value=record.value(), headers=headers)
    consumer.commit(record, asynchronous=False)
    print(f"{value}: put back (tries: {tries}; {error})", flush=True)
    done += 1
consumer.close()
