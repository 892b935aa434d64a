// What the search box means, and how it is found.

import { get, query } from "./api.js";
import { dayAndMonth, isoTime, nearTime, parseDuration, parseTime, timeOf } from "./format.js";
import { visible } from "./dom.js";
import { live } from "./live.js";

const page_size = 100;
// A search through millions of records goes on by itself for this long, and then when it is told to.
const patience_ms = 15_000;
// The event stream lists so many topics at most.
const listed_topics = 200;

// topic:NAME id:GLOB key:GLOB partition:N due:TIME, due:A..B, due:<1h, and words that are part of an id, a key or a topic's
// name, or a time.  Quotes keep spaces together.
export function parseSearch(text, now) {
  const search = { topic: null, id: null, key: null, partition: null, span: null, words: "", wrong: null };
  const words = [];
  for (const [piece, name, quoted, plain] of text.matchAll(/(?:(topic|id|key|partition|due):)?(?:"([^"]*)"?|(\S+))/g)) {
    const value = quoted ?? plain ?? "";
    if (!name) words.push(quoted ?? piece);
    else if (name === "due") {
      search.span = parseSpan(value, now);
      if (!search.span && value) search.wrong = `“${visible(value)}” is not a time. Examples: due:18:30, due:2026-12-24, due:<1h, due:10:00..12:00.`;
    } else search[name] = value || null;
  }
  search.words = words.join(" ").trim();
  return search;
}

export function parseSpan(text, now) {
  if (text === "overdue") return { from: null, to: now };
  const within = /^<\s*(.+)$/.exec(text);
  if (within) {
    const length = parseDuration(within[1]);
    return length === null ? null : { from: now, to: now + length };
  }
  const ends = text.split("..");
  if (ends.length === 2) {
    const from = ends[0] ? moment(ends[0], now) : null;
    const to = ends[1] ? moment(ends[1], now) : null;
    if ((ends[0] && from === null) || (ends[1] && to === null)) return null;
    return { from, to };
  }
  const length = parseDuration(text);
  // "in 1h" means about then.
  if (length !== null) return around(now + length, length);
  return parseTime(text, now);
}

const moment = (text, now) => {
  const length = parseDuration(text);
  return length === null ? parseTime(text, now)?.from ?? null : now + length;
};

function around(at, length) {
  const width = Math.max(1000, Math.abs(length) / 20);
  return { from: Math.round(at - width), to: Math.round(at + width) };
}

// How a span is written in the box: by its date or minute if it is one, in the browser's zone.
export function spanText(from, to) {
  const date = new Date(from - new Date(from).getTimezoneOffset() * 60_000).toISOString();
  for (const length of [10, 13, 16, 19]) {
    const text = date.slice(0, length);
    const meant = parseTime(text, from);
    if (meant?.from === from && meant.to === to) return `due:${text}`;
  }
  return `due:${short(from)}..${short(to)}`;
}
const short = (ms) => isoTime(ms).replace(":00.000Z", "Z").replace(".000Z", "Z");

// The same in words.
export function describe(search, now) {
  const parts = [];
  if (search.words) parts.push(`“${visible(search.words)}” in id, key, topic or time`);
  if (search.topic) parts.push(`topic ${visible(search.topic)}`);
  if (search.id) parts.push(`id ${visible(search.id)}`);
  if (search.key) parts.push(`key ${visible(search.key)}`);
  if (search.partition) parts.push(`partition ${visible(search.partition)}`);
  if (search.span) parts.push(spanWords(search.span, now));
  return parts.join(", ");
}

export function spanWords({ from, to }, now) {
  if (from === null && to === null) return "due at any time";
  if (from === null) return `due before ${nearTime(to, now)}`;
  if (to === null) return `due from ${nearTime(from, now)}`;
  if (to - from <= 1000) return `due at ${nearTime(from, now)}`;
  const sameDay = new Date(from).toDateString() === new Date(to - 1).toDateString();
  const wholeDays = timeOf(from) === "00:00:00" && timeOf(to) === "00:00:00";
  if (wholeDays && sameDay) return `due on ${dayAndMonth(from)}`;
  return `due ${nearTime(from, now)} to ${sameDay && !wholeDays ? timeOf(to) : nearTime(to, now)}`;
}

const isEmpty = (search) => !search.words && !search.topic && !search.id && !search.key && !search.partition && !search.span;
export { isEmpty };

function parameters(search, extra) {
  return query({
    topic: search.topic, id: search.id, key: search.key, partition: search.topic ? search.partition : null,
    from: search.span?.from ?? null, to: search.span?.to ?? null, limit: page_size, ...extra,
  });
}

// Finds records and calls onFound({records, next, complete, hasMore}) after each step: `next` is where to go on, `complete` says that
// this search has ended, `hasMore` that there are others.  `after` goes on where an earlier search had stopped.
export async function find(search, { signal, after = null, onFound }) {
  const now = live.now();
  // The beginning of a name that is still being typed is no topic, and is not asked for.
  const listed = live.topics?.topics ?? [];
  if (search.topic && !listed.some(({ name }) => name === search.topic) && listed.some(({ name }) => name.startsWith(search.topic)))
    return onFound({ records: [], next: null, complete: true, hasMore: false });
  if (!search.words) {
    const page = await get(`/delayed${parameters(search, { after })}`, { signal });
    let { records, next } = page;
    const until = performance.now() + patience_ms;
    // A page may be short although there is more.
    while (next && records.length < page_size && performance.now() < until) {
      onFound({ records, next, complete: false, hasMore: true });
      const more = await get(`/delayed${parameters(search, { after: next })}`, { signal });
      records = [...records, ...more.records];
      next = more.next;
    }
    return onFound({ records, next, complete: true, hasMore: next !== null });
  }

  const found = new Map();
  const add = (records) => records.forEach((record) => found.set(record.handle, record));
  const sorted = () => [...found.values()].sort((a, b) => a.due_ms - b.due_ms);
  let isCut = false;
  const optional = async (path) => {
    try {
      const page = await get(path, { signal });
      add(page.records);
      isCut ||= page.next !== null;
    } catch (error) {
      if (error.name === "AbortError") throw error;  // A topic of that name need not exist.
    }
  };

  const others = [];
  if (!after) {
    const span = search.span ? null : parseSpan(search.words, now);
    if (span) others.push(optional(`/delayed${parameters({ ...search, span })}`));
    if (!search.topic) {
      const words = search.words.toLowerCase();
      const names = (live.topics?.topics ?? []).filter(({ name, pending }) => pending > 0 && name.toLowerCase().includes(words)).map(({ name }) => name);
      // Beyond those listed a topic is asked for by its whole name; where all are listed, nothing is asked in vain.
      const unlisted = live.topics?.topics.length >= listed_topics;
      if (unlisted && /^[\w.-]{1,249}$/.test(search.words) && !names.includes(search.words)) names.unshift(search.words);
      others.push(...names.slice(0, 3).map((topic) => optional(`/delayed${parameters({ ...search, topic })}`)));
    }
    await Promise.all(others);
    if (found.size) onFound({ records: sorted(), next: null, complete: false, hasMore: true });
  }

  const until = performance.now() + patience_ms;
  let next = after;
  do {
    const page = await get(`/delayed${parameters(search, { q: search.words, after: next })}`, { signal });
    add(page.records);
    next = page.next;
    if (next) onFound({ records: sorted(), next, complete: false, hasMore: true });
  } while (next && found.size < page_size && performance.now() < until);
  onFound({ records: sorted(), next, complete: true, hasMore: isCut || next !== null });
}
