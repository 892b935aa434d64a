// What takes the memory of the process and the space on the disk, in parts: [{name, bytes, hint, isAtLeast}].

import { visible } from "./dom.js";

// Topics that are named; the others are one part.
const named_topics = 8;

// What the broker counts of it, and the rest: the process has more than what is counted.
export function memoryParts({ process, delayed, storage, shards = [], client_memory_bytes: clients }) {
  const bodies = delayed.memory_bytes ?? 0;
  const counted = [
    { name: "for clients", bytes: clients, hint: "Requests, their decoded form and unread responses" },
    { name: "pending records: bodies", bytes: bodies, hint: "Of records that are due soon or wait to be written" },
    { name: "pending records: places", bytes: Math.max(0, (delayed.near_bytes ?? 0) - bodies), hint: "In the wheel, and of buckets on disk" },
    { name: "newest records of logs", bytes: shards.reduce((sum, { log_tail_bytes: size }) => sum + (size ?? 0), 0), hint: "For consumers that read at the end, and those that are in no segment yet (tarry.log.tail.bytes, for each shard)" },
    { name: "databases", bytes: storage?.database_memory_bytes ?? 0, hint: "Rows that are not written yet, cached blocks and open tables" },
    { name: "the program", bytes: process.program_bytes ?? 0, hint: "Its code, and libraries" },
    { name: "kept for reuse", bytes: (process.heap_kept_bytes ?? 0) + (process.blocks_kept_bytes ?? 0), hint: "Freed memory, most of which is given back after some seconds" },
  ];
  const rest = process.rss_bytes - counted.reduce((sum, { bytes }) => sum + bytes, 0);
  // Memory that was used and is free again may not be resident.
  return [...counted, { name: "all else", bytes: Math.max(0, rest), hint: "Connections, groups, topics, indexes of logs, buffers of the journals, segments that are read ahead" }];
}

// `topics`: those that are known, as {name, bytes, partitions, partitions_open}; sizes of partitions that are not open are not known.
export function diskParts({ storage }, topics) {
  const open = topics.filter(({ partitions_open: count, bytes }) => count > 0 && bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const parts = open.slice(0, named_topics).map(({ name, bytes, partitions, partitions_open: count }) => ({ name: `logs of ${visible(name)}`, bytes, isAtLeast: count < partitions }));
  const named = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  const others = Math.max(0, (storage.logs_bytes ?? 0) - named);
  parts.push({ name: parts.length ? "all other logs" : "logs of partitions", bytes: others, hint: "Of other topics, of partitions that are not open, and the indexes of all" });
  parts.push({ name: "pending records", bytes: (storage.pending_blob_bytes ?? 0) + (storage.pending_table_bytes ?? 0), hint: "The store's compressed files" });
  parts.push({ name: "journals", bytes: storage.journal_files_bytes ?? 0, hint: "Their files, which have their full size from the beginning" });
  // The size of all files is some seconds older than those of topics.
  const rest = storage.bytes - parts.reduce((sum, { bytes }) => sum + bytes, 0);
  return [...parts, { name: "all else", bytes: Math.max(0, rest), hint: "The database of topics, groups and users, and its logs" }];
}
