"""Kafka's wire protocol by hand: what no client library would ever send can be sent from here.

`Client` is one connection; `batch()` makes a record batch of any shape, `parse_batches()` reads
them. Only what the tests need; versions are those that it names.
"""

import dataclasses
import socket
import struct
import time
import uuid

import compression as codecs

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 18, 19, 20, 22

FLEXIBLE_FROM = {0: 9, 1: 12, 2: 6, 3: 9, 10: 3, 18: 3, 19: 5, 20: 4, 22: 2, 32: 4, 33: 2, 37: 2, 44: 1, 50: 0, 51: 0, 60: 0, 75: 0}

NO_ERROR, OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE = 0, 1, 2, 3, 5
NOT_LEADER, MESSAGE_TOO_LARGE, INVALID_TOPIC, UNSUPPORTED_VERSION, TOPIC_EXISTS = 6, 10, 17, 35, 36
COORDINATOR_LOADING, INVALID_REQUEST, POLICY_VIOLATION, OUT_OF_ORDER_SEQUENCE = 14, 42, 44, 45
KAFKA_STORAGE_ERROR, UNSUPPORTED_COMPRESSION, INVALID_RECORD, UNKNOWN_TOPIC_ID = 56, 76, 87, 100


class KafkaError(Exception):
    def __init__(self, what, code, message=None):
        super().__init__(f"{what}: error {code}" + (f", {message}" if message else ""))
        self.code = code


class ConnectionEnded(Exception):
    """The broker closed the connection."""


# --- bytes ---------------------------------------------------------------------------------------

_CRC32C = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _CRC32C.append(_byte)


def crc32c(data):
    crc, table = 0xFFFFFFFF, _CRC32C
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def uvarint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def varint(n):
    return uvarint(n << 1 if n >= 0 else (-n << 1) - 1)


i8, i16, i32, i64, u32 = (struct.Struct(">" + letter).pack for letter in "bhiqI")


def string(text):
    if text is None:
        return i16(-1)
    data = text.encode() if isinstance(text, str) else text
    return i16(len(data)) + data


def compact(data):
    """A compact string or bytes; None is null."""
    if data is None:
        return b"\0"
    data = data.encode() if isinstance(data, str) else data
    return uvarint(len(data) + 1) + data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        piece = self.data[self.at : self.at + count]
        if len(piece) < count:
            raise ValueError(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return piece

    def _unpack(self, fmt, size):
        return struct.unpack(fmt, self.take(size))[0]

    def i8(self):
        return self._unpack(">b", 1)

    def i16(self):
        return self._unpack(">h", 2)

    def i32(self):
        return self._unpack(">i", 4)

    def u32(self):
        return self._unpack(">I", 4)

    def i64(self):
        return self._unpack(">q", 8)

    def uvarint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def varint(self):
        value = self.uvarint()
        return value >> 1 ^ -(value & 1)

    def string(self):
        size = self.i16()
        return None if size < 0 else self.take(size).decode()

    def compact_string(self):
        size = self.uvarint()
        return None if size == 0 else self.take(size - 1).decode()

    def varbytes(self):
        size = self.varint()
        return None if size < 0 else self.take(size)

    def array(self, read):
        return [read() for _ in range(self.i32())]

    def compact_array(self, read):
        return [read() for _ in range(self.uvarint() - 1)]

    def tags(self):
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())


# --- record batches ------------------------------------------------------------------------------


@dataclasses.dataclass
class Record:
    value: bytes = None
    key: bytes = None
    headers: list = dataclasses.field(default_factory=list)  # (name, value) pairs of bytes.
    timestamp: int = None
    offset: int = None
    arrived: float = None  # Wall time in ms at which consume() had it in hand.

    def header(self, name):
        """The header's value as text; None when it is not there."""
        for key, value in self.headers:
            if key == name.encode():
                return value.decode()
        return None


def record(value, key=None, timestamp=None, **headers):
    """record(b"v", x_delay="3s"): underscores in a header's name become dashes."""
    to_bytes = lambda text: text if isinstance(text, (bytes, type(None))) else str(text).encode()
    pairs = [(name.replace("_", "-").encode(), to_bytes(text)) for name, text in headers.items()]
    return Record(to_bytes(value), to_bytes(key), pairs, timestamp)


def encode_record(rec, offset_delta, timestamp_delta):
    def sized(data):
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + sized(rec.key) + sized(rec.value)
    body += varint(len(rec.headers)) + b"".join(sized(k) + sized(v) for k, v in rec.headers)
    return varint(len(body)) + body


def batch(records, codec=0, *, producer=(-1, -1, -1), leader_epoch=-1, base_offset=0, attributes=None,
          count=None, last_delta=None, max_timestamp=None, packed=None, crc=None, magic=2):
    """One batch of format 2. What is given wins over what would be right, for tests of wrong ones.

    producer: (id, epoch, base sequence). packed: the compressed records as they go out.
    """
    now = int(time.time() * 1000)
    stamps = [now if rec.timestamp is None else rec.timestamp for rec in records]
    base = stamps[0] if stamps else now
    plain = b"".join(encode_record(rec, i, stamps[i] - base) for i, rec in enumerate(records))
    body = codecs.compress(codec, plain) if packed is None else packed
    after_crc = (
        i16(codec if attributes is None else attributes)
        + i32(len(records) - 1 if last_delta is None else last_delta)
        + i64(base)
        + i64(max(stamps, default=base) if max_timestamp is None else max_timestamp)
        + i64(producer[0]) + i16(producer[1]) + i32(producer[2])
        + i32(len(records) if count is None else count)
        + body
    )
    after_length = i32(leader_epoch) + i8(magic) + u32(crc32c(after_crc) if crc is None else crc) + after_crc
    return i64(base_offset) + i32(len(after_length)) + after_length


@dataclasses.dataclass
class Batch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    max_timestamp: int
    producer: tuple
    count: int
    records: list
    crc_ok: bool
    size: int

    @property
    def codec(self):
        return self.attributes & 7


def parse_batches(data, check_crc=False):
    """Every whole batch in what a Fetch brought."""
    batches, at = [], 0
    while at + 12 <= len(data):
        size = 12 + struct.unpack(">i", data[at + 8 : at + 12])[0]
        if at + size > len(data):
            break
        reader = Reader(data[at : at + size])
        base_offset, _, leader_epoch, magic, crc = (
            reader.i64(), reader.i32(), reader.i32(), reader.i8(), reader.u32())
        if magic != 2:
            raise ValueError(f"a batch of format {magic} at offset {base_offset}")
        attributes, last_delta = reader.i16(), reader.i32()
        base_timestamp, max_timestamp = reader.i64(), reader.i64()
        producer = (reader.i64(), reader.i16(), reader.i32())
        count = reader.i32()
        inner = Reader(codecs.decompress(attributes & 7, reader.data[reader.at :]))
        records = []
        for _ in range(count):
            inner.varint()
            inner.i8()
            timestamp, offset = base_timestamp + inner.varint(), base_offset + inner.varint()
            key, value = inner.varbytes(), inner.varbytes()
            headers = [(inner.varbytes(), inner.varbytes()) for _ in range(inner.varint())]
            if attributes & 8:
                timestamp = max_timestamp  # LogAppendTime.
            records.append(Record(value, key, headers, timestamp, offset))
        crc_ok = crc32c(data[at + 21 : at + size]) == crc if check_crc else True
        batches.append(Batch(base_offset, base_offset + last_delta, leader_epoch, attributes,
                             max_timestamp, producer, count, records, crc_ok, size))
        at += size
    return batches


# --- a connection --------------------------------------------------------------------------------


@dataclasses.dataclass
class Produced:
    error: int
    base_offset: int
    log_start_offset: int
    record_errors: list  # (index, message)
    message: str


@dataclasses.dataclass
class Fetched:
    error: int
    high_watermark: int
    log_start_offset: int
    records: bytes  # None when the broker sent null.

    def batches(self, check_crc=False):
        return parse_batches(self.records or b"", check_crc)


class Client:
    """One connection. Requests wait for their answers, except send()."""

    def __init__(self, address, timeout=30, client_id="integration", source=None):
        self.socket = socket.create_connection(address, timeout=timeout, source_address=source and (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id, self.correlation = client_id, 0
        self.topic_ids = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def header(self, key, version):
        self.correlation += 1
        flexible = version >= FLEXIBLE_FROM.get(key, 99)
        return i16(key) + i16(version) + i32(self.correlation) + string(self.client_id) + (b"\0" if flexible else b"")

    def send(self, key, version, body):
        message = self.header(key, version) + body
        self.socket.sendall(i32(len(message)) + message)
        return self.correlation

    def read_exactly(self, size):
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError as error:
                raise ConnectionEnded(str(error)) from error
            if not piece:
                raise ConnectionEnded(f"after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def receive(self, key, version):
        """The next answer, past its header."""
        frame = Reader(self.read_exactly(struct.unpack(">i", self.read_exactly(4))[0]))
        frame.correlation = frame.i32()
        if version >= FLEXIBLE_FROM.get(key, 99) and key != API_VERSIONS:
            frame.tags()
        return frame

    def request(self, key, version, body):
        sent = self.send(key, version, body)
        answer = self.receive(key, version)
        assert answer.correlation == sent, f"answer {answer.correlation} to request {sent}"
        return answer

    # --- requests

    def api_versions(self, version=0):
        body = compact("tests") + compact("1") + b"\0" if version >= 3 else b""
        answer = self.request(API_VERSIONS, version, body)
        error = answer.i16()
        if version < 3 or error == UNSUPPORTED_VERSION:
            keys = answer.array(lambda: (answer.i16(), answer.i16(), answer.i16()))
        else:
            def entry():
                row = (answer.i16(), answer.i16(), answer.i16())
                answer.tags()
                return row
            keys = answer.compact_array(entry)
        return error, {key: (low, high) for key, low, high in keys}, answer

    def metadata(self, *names, create=False):
        """Topic name -> (error, topic id, {partition: leader}). No name: all topics."""
        topics = uvarint(len(names) + 1) + b"".join(bytes(16) + compact(n) + b"\0" for n in names) if names else b"\0"
        answer = self.request(METADATA, 12, topics + i8(create) + i8(0) + b"\0")
        answer.i32()

        def broker():
            row = (answer.i32(), answer.compact_string(), answer.i32(), answer.compact_string())
            answer.tags()
            return row

        def partition():
            error, index, leader, _ = answer.i16(), answer.i32(), answer.i32(), answer.i32()
            for _ in range(3):
                answer.compact_array(answer.i32)
            answer.tags()
            return index, leader if error == 0 else -1

        def topic():
            error, name, topic_id, _ = answer.i16(), answer.compact_string(), answer.take(16), answer.i8()
            partitions = dict(answer.compact_array(partition))
            answer.i32()
            answer.tags()
            return name, (error, topic_id, partitions)

        answer.compact_array(broker)
        self.cluster_id = answer.compact_string()
        answer.i32()
        return dict(answer.compact_array(topic))

    def create_topic(self, name, partitions=1, **configs):
        """Returns when the topic has leaders. Underscores in a config's name are dots."""
        pairs = i32(len(configs)) + b"".join(string(k.replace("_", ".")) + string(str(v)) for k, v in configs.items())
        answer = self.request(CREATE_TOPICS, 4, i32(1) + string(name) + i32(partitions) + i16(1) + i32(0) + pairs
                              + i32(30000) + i8(0))
        answer.i32(), answer.i32(), answer.string()
        error, message = answer.i16(), answer.string()
        if error:
            raise KafkaError(f"create topic {name}", error, message)
        deadline = time.monotonic() + 20
        while True:
            found, topic_id, leaders = self.metadata(name)[name]
            if found == 0 and len(leaders) == partitions and min(leaders.values()) >= 0:
                try:  # Kafka names leaders before they know that they lead.
                    for partition in range(partitions):
                        self.end_offset(name, partition)
                    self.topic_ids[name] = topic_id
                    return name
                except KafkaError as late:
                    found = late.code
            if time.monotonic() > deadline:
                raise KafkaError(f"topic {name} got no leaders", found)
            time.sleep(0.05)

    def delete_topic(self, name):
        """(error, message)."""
        answer = self.request(DELETE_TOPICS, 5, uvarint(2) + compact(name) + i32(30000) + b"\0")
        answer.i32(), answer.uvarint(), answer.compact_string()
        return answer.i16(), answer.compact_string()

    def init_producer_id(self):
        for _ in range(50):
            answer = self.request(INIT_PRODUCER_ID, 1, string(None) + i32(60000))
            answer.i32()
            error, producer_id, epoch = answer.i16(), answer.i64(), answer.i16()
            if error == 0:
                return producer_id, epoch
            if error != COORDINATOR_LOADING:
                break
            time.sleep(0.1)
        raise KafkaError("init producer id", error)

    def produce_body(self, topic, partition, data, acks=-1):
        """Of versions 3 to 8."""
        return (string(None) + i16(acks) + i32(30000) + i32(1) + string(topic) + i32(1) + i32(partition)
                + (i32(-1) if data is None else i32(len(data)) + data))

    def produce(self, topic, data, partition=0, acks=-1, check=True):
        """data: a batch, or records to make one of. With check an error is raised."""
        if isinstance(data, list):
            data = batch(data)
        answer = self.request(PRODUCE, 8, self.produce_body(topic, partition, data, acks))
        result = self.read_produced(answer)
        if check and result.error:
            raise KafkaError(f"produce to {topic}-{partition}", result.error, result.message)
        return result

    def schedule(self, topic, id, partition=0, key="k", value=None, **headers):
        """A record that is pending under this id; due in an hour, unless a header says when."""
        if "x_deliver_at" not in headers:
            headers.setdefault("x_delay", "1h")
        self.produce(topic, [record(id if value is None else value, key=key, x_schedule_id=id, **headers)], partition)

    @staticmethod
    def read_produced(answer):
        answer.i32(), answer.string(), answer.i32(), answer.i32()
        error, base, _, start = answer.i16(), answer.i64(), answer.i64(), answer.i64()
        errors = answer.array(lambda: (answer.i32(), answer.string()))
        return Produced(error, base, start, errors, answer.string())

    def fetch_body(self, topic, offset, partition=0, version=11, max_wait=500, min_bytes=1,
                   max_bytes=50 << 20, partition_bytes=10 << 20):
        """Of versions 4 to 17, for one partition."""
        flexible, by_id = version >= 12, version >= 13
        tag = b"\0" if flexible else b""
        one = uvarint(2) if flexible else i32(1)
        none = uvarint(1) if flexible else i32(0)
        body = i32(-1) if version < 15 else b""
        body += i32(max_wait) + i32(min_bytes) + i32(max_bytes) + i8(0)
        if version >= 7:
            body += i32(0) + i32(-1)
        name = self.topic_id(topic) if by_id else compact(topic) if flexible else string(topic)
        body += one + name + one + i32(partition)
        body += i32(-1) if version >= 9 else b""
        body += i64(offset)
        body += i32(-1) if version >= 12 else b""
        body += i64(-1) if version >= 5 else b""
        body += i32(partition_bytes) + tag + tag
        if version >= 7:
            body += none
        if version >= 11:
            body += compact("") if flexible else string("")
        return body + tag

    def topic_id(self, topic):
        if isinstance(topic, uuid.UUID):
            return topic.bytes
        if topic not in self.topic_ids:
            self.topic_ids[topic] = self.metadata(topic)[topic][1]
        return self.topic_ids[topic]

    def read_fetched(self, answer, version=11):
        flexible = version >= 12
        count = (lambda: answer.uvarint() - 1) if flexible else answer.i32
        answer.i32()
        if version >= 7:
            error = answer.i16()
            answer.i32()
            if error:
                raise KafkaError("fetch", error)
        if count() == 0:
            raise KafkaError("fetch answered no topic", -1)
        if version >= 13:
            answer.take(16)
        elif flexible:
            answer.compact_string()
        else:
            answer.string()
        count(), answer.i32()
        error, high, _ = answer.i16(), answer.i64(), answer.i64()
        start = answer.i64() if version >= 5 else -1
        for _ in range(count()):
            answer.i64(), answer.i64()
            if flexible:
                answer.tags()
        if version >= 11:
            answer.i32()
        size = count()
        return Fetched(error, high, start, None if size < 0 else answer.take(size))

    def fetch(self, topic, offset, partition=0, version=11, **limits):
        answer = self.request(FETCH, version, self.fetch_body(topic, offset, partition, version, **limits))
        return self.read_fetched(answer, version)

    def end_offset(self, topic, partition=0, timestamp=-1):
        body = i32(-1) + i8(0) + i32(1) + string(topic) + i32(1) + i32(partition) + i64(timestamp)
        answer = self.request(LIST_OFFSETS, 3, body)
        answer.i32(), answer.i32(), answer.string(), answer.i32(), answer.i32()
        error, _, offset = answer.i16(), answer.i64(), answer.i64()
        if error:
            raise KafkaError(f"list offsets of {topic}-{partition}", error)
        return offset

    def consume(self, topic, count, partition=0, offset=0, within=15, version=11):
        """The next `count` records, each with the wall time at which it was here."""
        records, deadline = [], time.monotonic() + within
        while len(records) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{len(records)} of {count} records of {topic}-{partition} within {within} s: "
                                     f"{[rec.value for rec in records][:10]}")
            fetched = self.fetch(topic, offset, partition, version, max_wait=int(min(left, 1) * 1000))
            arrived = time.time() * 1000
            if fetched.error:
                raise KafkaError(f"fetch {topic}-{partition} at {offset}", fetched.error)
            for found in fetched.batches():
                for rec in found.records:
                    if rec.offset >= offset:
                        rec.arrived = arrived
                        records.append(rec)
                offset = max(offset, found.last_offset + 1)
        return records

    def everything(self, topic, partition=0):
        """All batches of the partition up to its end, their checksums verified."""
        batches, offset, end = [], 0, self.end_offset(topic, partition)
        while offset < end:
            fetched = self.fetch(topic, offset, partition, max_wait=100)
            if fetched.error:
                raise KafkaError(f"fetch {topic}-{partition} at {offset}", fetched.error)
            found = fetched.batches(check_crc=True)
            assert found, f"nothing at offset {offset} of {topic}-{partition}, which ends at {end}"
            for each in found:
                assert each.crc_ok, f"wrong CRC at offset {each.base_offset}"
            batches += found
            offset = found[-1].last_offset + 1
        return batches
