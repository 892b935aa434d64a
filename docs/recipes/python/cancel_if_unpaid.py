"""Cancel if unpaid: an order that is not paid in time is cancelled.

    python3 cancel_if_unpaid.py BROKERS TOPIC [DELAY_MS]
"""

import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer

brokers, topic = sys.argv[1:3]
delay_ms = sys.argv[3] if len(sys.argv) > 3 else "30000"

producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random"})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "order-timeouts", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest"})
state = {}  # Stands for your database: order -> "open", "paid", "cancelled" or "to be refunded".


def send(order, headers):
    """Returns when the record is durable, or raises. The key takes all records of one order to one partition."""
    errors = []
    producer.produce(topic, key=order, value=order, headers={"x-schedule-id": order, **headers},
                     on_delivery=lambda error, _: errors.append(error) if error else None)
    producer.flush()
    if errors:
        raise KafkaException(errors[0])


def place(order):
    # The event may come again: a second timeout would begin the time anew, or come for an order that is paid.
    if order in state:
        return
    # The timeout first: a crash in between leaves a timeout without an order, which does nothing.
    # The other way round it would leave an order that is never cancelled.
    send(order, {"x-delay": delay_ms})
    state[order] = "open"  # INSERT INTO orders VALUES (?, 'open') ON CONFLICT DO NOTHING


def pay(order, crash=False):
    if order not in state:
        raise LookupError(f"{order} is not placed yet")  # Try again later.
    # The database first, and it decides: UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'open'
    if state[order] == "open":
        state[order] = "paid"
    if state[order] == "paid":
        # Also when the event comes again: the program may have crashed here.
        if not crash:
            send(order, {"x-schedule-action": "cancel"})
    elif state[order] == "cancelled":
        state[order] = "to be refunded"
        print(f"{order}: paid too late, to be refunded", flush=True)


def on_timeout(order):
    # One conditional update, so that a payment at the same moment wins or loses as a whole:
    # UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'open'
    if state.get(order) == "open":
        state[order] = "cancelled"
        print(f"{order}: not paid in time, cancelled", flush=True)
    else:
        print(f"{order}: {state.get(order, 'never placed')}, nothing to do", flush=True)


for order in ("order-1", "order-2", "order-3"):
    place(order)
pay("order-2")  # Its timeout never comes.
pay("order-3", crash=True)  # Its timeout comes, and finds that it is paid.
pay("order-2")  # Both events come again, and change nothing.
place("order-2")

running = True


def stop(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, stop)
consumer.subscribe([topic])
left = 2  # A service would run until it is stopped.
while left and running:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    on_timeout(record.value().decode())
    consumer.commit(record, asynchronous=False)
    left -= 1
consumer.close()  # Leaves the group, so that the other members need not wait for a timeout.
if running:
    pay("order-1")
