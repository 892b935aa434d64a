"""Cancel if unpaid: an order that is not paid in time is cancelled.

    python3 cancel_if_unpaid.py BROKERS TOPIC [DELAY_MS [FILE]]

TOPIC has all events of all orders, each with its order as key: "placed", "paid", and the "timeout" that this program sends.
With FILE, which stands for your database, it is a service: it handles what others send, until SIGTERM or Ctrl-C. Without FILE it
plays the shop too, and ends by itself.
"""

import json
import os
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic = sys.argv[1:3]
delay_ms = sys.argv[3] if len(sys.argv) > 3 else "30000"
file = sys.argv[4] if len(sys.argv) > 4 else ""

# A record that the broker has not acknowledged after ten seconds is an error, which ends the program.
producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random",
                     "message.timeout.ms": 10000})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "order-timeouts", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})
state = {}  # Order -> "open", "paid", "cancelled" or "to be refunded".
if os.path.exists(file):
    with open(file) as stored:
        state = json.load(stored)


def store(order, what):
    state[order] = what
    if file:
        with open(file, "w") as stored:
            json.dump(state, stored)


def send(order, event, headers, partition=-1):
    """Returns when the record is durable, or raises. The key takes all events of one order to one partition."""
    errors = []
    # As bytes: some versions of the client end a text at its first zero byte.
    headers = {name: value.encode() for name, value in headers.items()}
    producer.produce(topic, key=order, value=event, headers=headers, partition=partition,
                     on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


def place(order, partition):
    # The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
    if order in state:
        return
    # The timeout first: a crash in between leaves a timeout without an order, which does nothing.
    # The other way round it would leave an order that is never cancelled.
    # In the partition of the other events, it is behind all payments that came before it was due.
    send(order, "timeout", {"x-schedule-id": f"order/{order}", "x-delay": delay_ms}, partition)
    store(order, "open")  # INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING


def pay(order, partition):
    # The database first, and it decides: INSERT INTO orders VALUES (?, 'paid')
    # ON CONFLICT (id) DO UPDATE SET state = 'paid' WHERE orders.state = 'open'
    if state.get(order, "open") == "open":
        store(order, "paid")
    if state[order] == "paid":
        # Also when the event comes again: the program may have crashed here.
        send(order, None, {"x-schedule-id": f"order/{order}", "x-schedule-action": "cancel"}, partition)
    elif state[order] == "cancelled":
        store(order, "to be refunded")
        print(f"{order}: paid too late, to be refunded", flush=True)


def on_timeout(order):
    # One conditional update, so that a payment at the same moment wins or loses as a whole:
    # UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
    if state.get(order) == "open":
        store(order, "cancelled")
        print(f"{order}: not paid in time, cancelled", flush=True)
    else:
        print(f"{order}: {state.get(order, 'never placed')}, nothing to do", flush=True)


def handle(record):
    key = record.key() or b""
    order = key.decode(errors="replace")
    if not 0 < len(key) <= 200 or order.encode() != key:
        # An id has at most 249 bytes of UTF-8. A timeout that is refused would stop all events behind this one for ever.
        print(f"an order of {len(key)} bytes, put aside", flush=True)
    elif record.value() == b"placed":
        place(order, record.partition())
    elif record.value() == b"paid":
        pay(order, record.partition())
    elif record.value() == b"timeout":  # Others may send other events.
        on_timeout(order)


running = True


def stop(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
if not file:
    send("order-1", "placed", {})
    for event in ("placed", "paid", "paid", "placed"):  # Some events come twice, and change nothing.
        send("order-2", event, {})  # Its timeout never comes.

consumer.subscribe([topic])
while running and (file or state.get("order-1") != "cancelled"):
    signal.alarm(20)  # Ends the program if a round takes so long: without a broker, commit() would wait for ever, and no signal be seen.
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    handle(record)
    consumer.commit(record, asynchronous=False)
consumer.close()  # Leaves the group, so that the other members need not wait for a timeout.
if running:
    pay("order-1", -1)
