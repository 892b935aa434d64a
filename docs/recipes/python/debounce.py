"""Debounce: many changes, one record, when nothing has changed for a while.

    python3 debounce.py BROKERS TOPIC [QUIET_MS]
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic = sys.argv[1:3]
quiet_ms = sys.argv[3] if len(sys.argv) > 3 else "5000"

producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random",
                     "message.timeout.ms": 10000})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "indexer", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})


def changed(page, version):
    """Replaces the pending record of the page, and so begins the quiet time again. The last value wins."""
    errors = []
    producer.produce(topic, key=page, value=version, headers={"x-schedule-id": page.encode(), "x-delay": quiet_ms},
                     on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


for version in range(1, 6):
    changed("page-1", f"version {version}")
changed("page-2", "version 1")

consumer.subscribe([topic])
left = 2  # A service would run for ever.
while left:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    print(f"{record.key().decode()}: index {record.value().decode()}", flush=True)  # Repeated after a crash.
    consumer.commit(record, asynchronous=False)
    left -= 1
consumer.close()
