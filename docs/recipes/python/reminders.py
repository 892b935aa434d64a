"""Reminders: at a time of the calendar; moved and cancelled by id; dropped when they would come too late.

    python3 reminders.py BROKERS TOPIC [SECONDS]
"""

import datetime
import sys

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic = sys.argv[1:3]
soon = datetime.timedelta(seconds=float(sys.argv[3]) if len(sys.argv) > 3 else 10)

producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random",
                     "message.timeout.ms": 10000})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reminders", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})


def send(visit, text, headers):
    """Returns when the record is durable, or raises."""
    errors = []
    producer.produce(topic, key=visit, value=text, headers={"x-schedule-id": visit.encode(), **headers},
                     on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


def remind(visit, text, at, visit_at):
    """The same call sets a reminder and moves it: the same id replaces what is pending."""
    send(visit, text, {"x-deliver-at": at.isoformat(timespec="milliseconds"),  # With its offset from UTC.
                       "x-expire-at": visit_at.isoformat(timespec="milliseconds")})


def forget(visit):
    send(visit, None, {"x-schedule-action": "cancel"})


now = datetime.datetime.now().astimezone()
hour = datetime.timedelta(hours=1)
remind("visit-1", "your visit is today", now + soon, now + hour)
remind("visit-2", "your visit is tomorrow", now + hour, now + 2 * hour)
remind("visit-2", "your visit was moved to today", now + 2 * soon, now + hour)  # Moved.
remind("visit-3", "your visit is today", now + soon, now + hour)
forget("visit-3")

consumer.subscribe([topic])
left = 2  # A service would run for ever.
reminded = set()  # Stands for your database.
while left:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    # A crash before the commit repeats the record. Its handle tells that it is the same one.
    handle = dict(record.headers())["x-schedule-handle"]
    if handle not in reminded:
        print(f"{record.key().decode()}: {record.value().decode()}", flush=True)
        reminded.add(handle)
    consumer.commit(record, asynchronous=False)
    left -= 1
consumer.close()
