// The levels of the wheels: where pending records are, in memory and on disk, and the deadlines of requests.

import { Table, el, setText } from "./dom.js";
import { bytes, duration, integer, nearTime, plural } from "./format.js";
import { live } from "./live.js";
import { Figures, card, meter } from "./parts.js";
import { strip } from "./slots.js";
import { WheelPicture } from "./wheel_picture.js";

const buckets = 256;  // A level has so many; docs/timing.md says why.

export function wheelView(section) {
  const figures = new Figures([
    ["wheel-pending", "Pending", "All pending records: those in memory and those on disk only"],
    ["memory-records", "In memory", "Records that are due soon, and records that wait to be written"], ["memory-bytes", "Bytes in memory"],
    ["disk-records", "On disk only"], ["disk-bytes", "Bytes on disk", "The size of the store's compressed files. They include cancelled records whose space is not freed yet, but not the records that only the journal has. The rows below count records before compression"], ["disk-buckets", "Chunks on disk"],
    ["in-memory-until", "All in memory until", "All records that are due before this time are in memory"],
    ["came-near", "Loaded from disk", "Records that were read from disk into memory because their due time is near, since the start"], ["next", "Next due"],
  ]);
  const picture = new WheelPicture();
  const levels = new Table([
    { head: "Level", class: "name", cell: ({ name }) => name },
    { head: "Bucket length", class: "number", hint: "The time that one bucket covers", cell: ({ span_ms }) => (span_ms ? span(span_ms) : "") },
    { head: "Records", class: "wide-cell", hint: "Those in parentheses are in the rows of memory already", cell: (row) => meter(Math.abs(row.records), row.whole, recordsText(row), row.kind === "within" ? "--series-other" : colour(row.place)) },
    { head: "Buckets", class: "wide-cell", hint: "Each slot is a bucket: filled if it is in use, marked if it contains the current time", cell: (row) => (row.slots ? strip({ ...row, colour: colour(row.place) }, live.now()) : "") },
    { head: "Bytes", class: "number", cell: (row) => (row.span_ms ? bytes(row.bytes) : "") },
    { head: "Chunks", class: "number", hint: "wheel: buckets in use; else pieces of buckets", cell: (row) => (row.span_ms ? integer(row.chunks) : "") },
    { head: "Moved up", class: "number", hint: "Records that moved up to this level", cell: (row) => (row.span_ms ? integer(row.upgrades) : "") },
    { head: "Moved down", class: "number", hint: "Records that moved down to this level", cell: (row) => (row.span_ms ? integer(row.downgrades) : "") },
  ], { key: ({ name }) => name, caption: "Levels in memory and on disk, which add up to all pending records", row: ({ kind }) => ({ class: `part-${kind}`, data: { part: kind } }) });
  const explanation = el("p", { class: "hint" }, "The rows of memory and of disk add up to all pending records. Numbers in parentheses are part of the rows of memory: records that are due soon have a place in the wheel too.");

  const wheelTable = (caption) => new Table([
    { head: "Level", class: "name", cell: ({ level }) => level },
    { head: "Bucket length", class: "number", hint: "The time that one bucket covers", cell: ({ tick_ms }) => span(tick_ms) },
    { head: "The level", class: "number", hint: "The time that its 256 buckets cover", cell: ({ tick_ms }) => span(tick_ms * buckets) },
    { head: "Buckets in use", class: "wide-cell", cell: (level) => meter(level.buckets_in_use, buckets * level.wheels, `${integer(level.buckets_in_use)} of ${integer(buckets * level.wheels)}`, "--series-0") },
    { head: "Which", class: "wide-cell", hint: "Each slot is a bucket: filled if it is in use in a shard, marked if it contains the current time", cell: (level) => strip({ slots: level.slots, span_ms: level.tick_ms, colour: "--series-0" }, live.now()) },
    { head: "Timers", class: "number", cell: ({ timers }) => integer(timers) },
    { head: "Moved up", class: "number", hint: "Timers that were placed above level 0, or moved up", cell: ({ upgrades }) => integer(upgrades) },
    { head: "Moved down", class: "number", hint: "Timers that moved down from a higher level", cell: ({ downgrades }) => integer(downgrades) },
  ], { key: ({ level }) => level, caption });
  const near = wheelTable("The wheel of records that are due soon");
  const requests = wheelTable("The wheel of deadlines of requests");
  const [nearNote, requestsNote] = [el("span", { class: "card-note" }), el("span", { class: "card-note" })];
  const shards = new Table([
    { head: "Shard", class: "name", cell: ({ shard }) => shard },
    { head: "Near", class: "number", hint: "Records in the wheel", cell: ({ delayed }) => integer(delayed.near) },
    { head: "Overdue", class: "number", cell: ({ delayed }) => integer(delayed.overdue) },
    { head: "In flight", class: "number", hint: "Being written to their logs", cell: ({ delayed }) => integer(delayed.in_flight) },
    { head: "Memory", class: "number", cell: ({ delayed }) => bytes(delayed.bytes) },
    { head: "Next due", class: "number", hint: "With ≥: not before this time, because not all records in memory were looked at", cell: ({ delayed }) => (delayed.next_due_ms === null ? "–" : `${delayed.next_due_exact ? "" : "≥ "}${nearTime(delayed.next_due_ms, live.now())}`) },
    { head: "Deadlines", class: "number", hint: "Deadlines of requests, of sessions and of the shard itself", cell: (shard) => integer(shard.requests.timers) },
  ], { key: ({ shard }) => shard, caption: "Shards" });

  section.append(figures.node,
    card("Pending records by due time", el("div", {}, picture.node, levels.node, explanation), { wide: true, note: el("span", { class: "card-note" }, "one wheel that continues on disk; the height of a bar is the logarithm of its records") }),
    card("Records that are due soon", near.node, { wide: true, note: nearNote }),
    card("Deadlines of requests", requests.node, { wide: true, note: requestsNote }),
    card("By shard", shards.node, { wide: true }));

  function draw() {
    const { wheel } = live;
    if (!wheel) return;
    figures.set("wheel-pending", integer(wheel.pending));
    figures.set("disk-bytes", bytes(wheel.disk.bytes));
    figures.set("memory-records", integer(wheel.memory.records));
    figures.set("memory-bytes", bytes(wheel.memory.bytes));
    figures.set("disk-records", integer(wheel.disk.records));
    figures.set("disk-buckets", integer(wheel.levels.filter(({ place }) => place === "disk").reduce((sum, { chunks }) => sum + chunks, 0)));
    figures.set("came-near", integer(wheel.memory.came_near));
    const until = Math.min(...wheel.shards.map(({ delayed }) => delayed.in_memory_until_ms ?? Infinity));
    figures.set("in-memory-until", Number.isFinite(until) ? nearTime(until, live.now()) : "–");
    const next = wheel.disk.next_due_ms;
    figures.set("next", next === null ? "none" : nearTime(next, live.now()));

    levels.update(levelRows(wheel));
    const nearLevels = sum(wheel.shards.map(({ delayed }) => delayed));
    picture.update({ wheel, due: live.due, now: live.now(), levels: nearLevels });
    near.update(nearLevels);
    requests.update(sum(wheel.shards.map((shard) => shard.requests)));
    setText(nearNote, `${plural(wheel.shards.reduce((count, { delayed }) => count + delayed.timers, 0), "record")}, all of them in memory`);
    setText(requestsNote, plural(wheel.shards.reduce((count, shard) => count + shard.requests.timers, 0), "timer"));
    shards.update(wheel.shards);
  }
  return { draw };
}

// The levels as rows that add up: {name, kind: part, within, gone, sum or total, place, records, whole ...}.
function levelRows(wheel) {
  const whole = Math.max(1, wheel.pending);
  const rows = [];
  const row = (name, kind, place, records) => rows.push({ name, kind, place, records, whole });
  const levelsOf = (where, kind) => {
    const found = wheel.levels.filter(({ place }) => place === where);
    for (const level of found) rows.push({ ...level, name: `${where}, ${where === "wheel" ? "level " : ""}${level.level}`, kind, whole });
    return found.reduce((sum, { records }) => sum + records, 0);
  };
  levelsOf("memory", "part");
  levelsOf("wheel", "within");
  row("in memory", "sum", "memory", wheel.memory.records);
  const inChunks = levelsOf("disk", "part");
  if (wheel.disk.gone) row("cancelled or moved, space not freed yet", "gone", "disk", -wheel.disk.gone);
  // Many chunks are counted every ten seconds only.
  const newer = wheel.disk.records - (inChunks - wheel.disk.gone);
  if (newer > 0) row("written since the chunks were counted", "part", "disk", newer);
  row("on disk only", "sum", "disk", wheel.disk.records);
  row("all pending records", "total", "memory", wheel.pending);
  return rows;
}

const recordsText = ({ kind, records }) => (kind === "within" ? `(${integer(records)})` : records < 0 ? `−${integer(-records)}` : integer(records));

// The same levels of all shards together.
function sum(wheels) {
  const levels = new Map();
  for (const wheel of wheels) {
    for (const level of wheel.levels) {
      const known = levels.get(level.level) ?? { level: level.level, tick_ms: level.tick_ms, wheels: wheels.length, buckets_in_use: 0, timers: 0, upgrades: 0, downgrades: 0 };
      known.slots = united(known.slots, level.slots);
      for (const name of ["buckets_in_use", "timers", "upgrades", "downgrades"]) known[name] += level[name];
      levels.set(level.level, known);
    }
  }
  return [...levels.values()].sort((a, b) => a.level - b.level);
}

// The slots that are in use in one of the two, whose rounds begin at about the same time.
function united(slots, others) {
  if (!slots) return others;
  const digits = Math.max(slots.bits.length, others.bits.length);
  const digit = ({ bits }, at) => parseInt(bits[at] ?? "0", 16);
  return { ...slots, bits: Array.from({ length: digits }, (_, at) => (digit(slots, at) | digit(others, at)).toString(16)).join("") };
}

const colour = (place) => (place === "disk" ? "--series-4" : "--series-0");
const span = (ms) => (ms >= 1000 ? duration(ms) : `${ms} ms`);
