"""Rate limiting: however fast records come in, they are delivered at most so many a second.

    python3 rate_limit.py BROKERS TOPIC [PER_SECOND [HORIZON_MS]]

Uses the topics TOPIC and TOPIC.paced. TOPIC has one partition, so that there is one pacer.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic = sys.argv[1:3]
interval_ms = 1000 / (float(sys.argv[3]) if len(sys.argv) > 3 else 2)
horizon_ms = float(sys.argv[4]) if len(sys.argv) > 4 else 5000

producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random",
                     "message.timeout.ms": 10000})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "pacer", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})


def send(*args, **record):
    """Returns when the record is durable, or raises."""
    errors = []
    producer.produce(*args, **record, on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


# The pacer gives each record the next free slot, at most a horizon ahead. It forgets its slots when it
# ends; so it begins behind all those that one before it may have given.
slot_ms = time.time() * 1000 + horizon_ms


def pace(record):
    global slot_ms
    slot_ms = max(slot_ms + interval_ms, time.time() * 1000)
    time.sleep(max(0, slot_ms - horizon_ms - time.time() * 1000) / 1000)
    # With an id, a crash before the commit gives it a new slot instead of a second one.
    send(f"{topic}.paced", key=record.key(), value=record.value(),
         headers={"x-deliver-at": str(int(slot_ms)), "x-schedule-id": f"{record.partition()}/{record.offset()}"}, partition=0)


mails = 5
for mail in range(1, mails + 1):
    send(topic, key=f"customer-{mail}", value=f"mail {mail}")

# One loop for both, to keep it short. In a service the pacer and the worker are two programs.
consumer.subscribe([topic, f"{topic}.paced"])
slots = []
while len(slots) < mails:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    if record.topic() == topic:
        pace(record)
    else:
        print(record.value().decode(), flush=True)
        slots.append(int(dict(record.headers())["x-scheduled-for"]))
    consumer.commit(record, asynchronous=False)
consumer.close()
closest = min(after - before for before, after in zip(slots, slots[1:]))
print("the rate was kept" if closest >= int(interval_ms) else f"{closest} ms between two mails")
