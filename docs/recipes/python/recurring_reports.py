"""Recurring reports: at the times of a cron expression, until it is cancelled.

    python3 recurring_reports.py BROKERS TOPIC [CRON]

Two runs, and then it is cancelled: with '* * * * * *' (six fields: every second) that takes two seconds.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic = sys.argv[1:3]
cron = sys.argv[3] if len(sys.argv) > 3 else "0 8 * * MON-FRI"

producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random",
                     "message.timeout.ms": 10000})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reports", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})


def send(report, headers):
    """Returns when the record is durable, or raises."""
    errors = []
    producer.produce(topic, key=report, value=report, headers={"x-schedule-id": report.encode(), **headers},
                     on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


# A service may do this at each start: the same id replaces the pending run, and the times stay those of the clock.
for _ in range(2):
    send("sales", {"x-cron": cron, "x-cron-tz": "Europe/Berlin"})

consumer.subscribe([topic])
written = set()  # Stands for your database: the runs whose report is written.
while len(written) < 2:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    # All runs have the same handle; the due time tells them apart, and says which time the report is about.
    run = int(dict(record.headers())["x-scheduled-for"])
    if run not in written:
        written.add(run)
        print(f"{record.value().decode()}: report {len(written)}", flush=True)
    consumer.commit(record, asynchronous=False)
consumer.close()

send("sales", {"x-schedule-action": "cancel"})
print("sales: no more reports", flush=True)
