"""Retry with back-off: a record that cannot be handled is handled again later, and put aside in the end.

    python3 retry.py BROKERS TOPIC [FIRST_DELAY_MS]

Uses the topics TOPIC, TOPIC.retry and TOPIC.dead, with the same number of partitions.
"""

import random
import re
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

brokers, topic = sys.argv[1:3]
first_delay_ms = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
max_tries = 3
cut = 500  # How much of a reason is sent, and of a key and a value that are too large.
# What the broker reads in a record that we send, in any case. A topic with tarry.delay.enable=false may have all of these.
scheduling = re.compile("x-(schedule.*|deliver-at|delay|every|cron|cron-tz|until|count|expire-at)", re.IGNORECASE)

# What a topic took has to be sent on: the client's own limit would be lower than the topic's.
producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random",
                     "message.timeout.ms": 10000, "message.max.bytes": 32 << 20})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "billing", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})


def handle(order, tries):
    """Your work. It has to be idempotent: a crash before the commit repeats it."""
    if order in ("", "nonsense"):
        raise ValueError("not an order")
    if order == "order 3" or (order == "order 2" and tries == 1):
        raise OSError("the bank does not answer")


def name_of(record):
    """For people: the value may be no text, or missing."""
    return (record.value() or b"").decode(errors="replace")


def reason_of(error):
    """As text that can be sent: a text of yours may have half of a character (a lone surrogate), and any length."""
    return str(error)[:cut].encode(errors="replace").decode()


def ours(record, headers, name):
    """Only in the retry topic are these headers ours; elsewhere somebody else may use the same names."""
    return (headers.get(name) or b"").decode(errors="replace") if record.topic() == f"{topic}.retry" else ""


def send(*args, **record):
    """Returns when the record is durable, or raises."""
    errors = []
    producer.produce(*args, **record, on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


def try_again_or_put_aside(record, headers, tries, error):
    """Sends the record on with its own headers and ours, and returns whether it is tried again. The caller commits only after that."""
    # The id names the record that failed first. If we crash before the commit and come here again,
    # the second copy replaces the first instead of joining it.
    origin = ours(record, headers, "retry-origin") or f"{record.topic()}/{record.partition()}/{record.offset()}"
    added = {"retry-origin": origin, "retry-tries": str(tries), "retry-error": reason_of(error)}
    again = tries < max_tries and not isinstance(error, ValueError)  # Nonsense stays nonsense.
    if again:
        delay = first_delay_ms * 2 ** (tries - 1) * random.uniform(1, 1.25)  # Not all at once after an outage.
        added |= {"x-schedule-id": origin, "x-delay": str(int(delay))}
    theirs = {name: value for name, value in headers.items() if not scheduling.fullmatch(name)}
    # The partition is the same too: an id belongs to its partition, and a record may have no key.
    key, value = record.key(), record.value() or b""
    try:
        send(f"{topic}.retry" if again else f"{topic}.dead", partition=record.partition(), key=key, value=record.value(), headers={**theirs, **added})
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
            raise
        # The topic takes no record of this size. The beginning of the value goes into a header, so that nobody takes it
        # for the whole; the whole is where retry-origin says.
        again = False
        send(f"{topic}.dead", partition=record.partition(), key=key and key[:cut], headers={
            "retry-origin": origin, "retry-tries": str(tries), "retry-error": f"too large to be sent on: {reason_of(error)}", "retry-cut": value[:cut]})
    print(f"{name_of(record)}: try {tries} failed, {'again later' if again else 'put aside'}", flush=True)
    return again


orders = ["order 1", "order 2", "order 3", "nonsense"]
for order in orders:
    send(topic, key=order, value=order)

consumer.subscribe([topic, f"{topic}.retry"])
left = len(orders)  # A service would run for ever.
while left:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    headers = dict(record.headers() or [])
    tried = ours(record, headers, "retry-tries")
    tries = int(tried) + 1 if tried.isdecimal() else 1
    try:
        handle((record.value() or b"").decode(), tries)
        print(f"{name_of(record)}: done at try {tries}", flush=True)
        left -= 1
    except Exception as error:  # A fault of ours too must not stop all records behind this one.
        left -= not try_again_or_put_aside(record, headers, tries, error)
    consumer.commit(record, asynchronous=False)
consumer.close()
