// The search box: the meaning of its words, and how records are found by them.

import { get, getInLines, query } from "./api.js";
import { dayAndMonth, isoTime, nearTime, parseDuration, parseTime, timeOf } from "./format.js";
import { visible } from "./dom.js";
import { isStuck, live } from "./live.js";

const page_size = 100;
// Records that came due since are on their way, and stay in the list as it is.
const just_due_ms = 4000;
// A search through millions of records goes on by itself for this long, and then when it is told to.
const patience_ms = 15_000;
// The event stream lists so many topics at most.
const listed_topics = 200;

export const terms = ["topic", "id", "key", "partition", "recurring", "due"];
// Of due:, the value goes on after the space of "in 1h", "tomorrow 9:00" and the like, and may have quoted parts: "tomorrow 9:00".."tomorrow 10:00".
const piece_pattern = /due:((?:"[^"]*"?|in\s+(?=[\dP])|(?:today|tomorrow|\d{4}-\d{2}-\d{2})\s+(?=\d{1,2}:\d{2})|[^\s"])+)|(?:(topic|id|key|partition|recurring):)?(?:"([^"]*)"?|(\S+))/g;

// topic:NAME id:GLOB key:GLOB partition:N recurring:yes due:TIME, due:A..B, due:<1h, due:>1h, and words that are part of an id, a key or a topic's
// name, or a time.  Quotes keep spaces together.  `unknown`: words that look like a term that there is not.
export function parseSearch(text, now) {
  const search = { topic: null, id: null, key: null, partition: null, recurring: null, span: null, words: "", unknown: [], wrong: null };
  const words = [];
  for (const [piece, due, name, quoted, plain] of text.matchAll(piece_pattern)) {
    const value = quoted ?? plain ?? "";
    if (due !== undefined) {
      const time = due.replaceAll('"', "");
      search.span = parseSpan(time, now);
      if (!search.span && time) search.wrong = `“${visible(time)}” is not a time. Examples: due:18:30, due:2026-12-24, due:"tomorrow 9:00", due:<1h, due:>30d, due:2026-12-24T09:00..2026-12-24T10:00.`;
    } else if (!name) {
      // A term whose value is still to be typed is no word.
      if (quoted === undefined && terms.some((term) => piece === `${term}:`)) continue;
      words.push(quoted ?? piece);
      const [, unknown] = (quoted === undefined && /^(-?[a-z]+:)./i.exec(piece)) || [];
      if (unknown) search.unknown.push(unknown);
    } else if (name === "recurring") {
      search.recurring = value === "yes" ? true : value === "no" ? false : null;
      if (search.recurring === null && value) search.wrong = `“${visible(value)}” is neither yes nor no. Examples: recurring:yes, recurring:no.`;
    } else search[name] = value || null;
  }
  search.words = words.join(" ").trim();
  if (search.partition !== null && !search.wrong) search.wrong = wrongPartition(search);
  return search;
}

function wrongPartition({ topic, partition }) {
  if (!/^\d+$/.test(partition)) return `“${visible(partition)}” is not the number of a partition. Example: topic:orders partition:2.`;
  return topic ? null : "A partition belongs to a topic, so partition: needs one. Example: topic:orders partition:2.";
}

export function parseSpan(text, now) {
  if (text === "overdue") return { from: null, to: now };
  const [, side, end] = /^([<>])\s*(.+)$/.exec(text) ?? [];
  if (side) {
    const length = parseDuration(end);
    if (length !== null) return side === "<" ? { from: now, to: now + length } : { from: now + length, to: null };
    const time = parseTime(end, now);
    if (!time) return null;
    return side === "<" ? { from: null, to: time.from } : { from: time.to, to: null };
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
  if (search.recurring !== null) parts.push(search.recurring ? "recurring" : "not recurring");
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

const hour_ms = 3_600_000;
const day_ms = 24 * hour_ms;
const most_bars = 120;
// To count by the minute the broker reads the records; of hours it knows their number, but for the parts of hours at both ends.
const counted_by_reading = 1_000_000;

const counted_one_by_one = 100_000;
// The topics that a time is counted of: as many as the pictures show by themselves.
const counted_topics = 8;

// How many records a search finds, exactly; of a search for a time alone, in one topic or all, also when in it they are due, and in all of which topics.
// {total, bars: {from, bucket_ms, counts} or null, peak: {unit, most: [{from, count}]} or null, topics: [{name, count}]}; null: that cannot be told at once.
export async function count(search, signal) {
  const { span, topic, id, key, partition } = search;
  if (search.words || search.recurring !== null) return null;
  if (span && span.from !== null && span.to !== null && !id && !key && !partition) return countSpan(span, topic, signal);
  if (topic && !span && !id && !key && !partition) return { total: (await get(`/delayed/count${query({ topic })}`, { signal })).total, bars: null, peak: null, topics: [] };
  // Every pending record of the topic is looked at.
  const pending = topic ? live.topics?.topics.find(({ name }) => name === topic)?.pending : undefined;
  if (pending === undefined || pending > counted_one_by_one) return null;
  const { matched } = await getInLines(`/delayed/select${query({ topic, partition, from: span?.from ?? null, to: span?.to ?? null, id, key, show: 0 })}`, { signal });
  return { total: matched, bars: null, peak: null, topics: [] };
}

const most_named = 3;
const soon_ms = 300_000;

// The busiest of the counts.  One of them is later than the coming minutes if there are such: records with short delays would hide what is due in the morning.
export function busiest(counts, now) {
  const sorted = [...counts].sort((a, b) => b.count - a.count);
  const most = sorted.slice(0, most_named);
  const isLater = ({ from }) => from >= now + soon_ms;
  const later = most.some(isLater) ? undefined : sorted.find(isLater);
  if (later) most.splice(most_named - 1, 1, later);
  return most;
}

async function countSpan(span, topic, signal) {
  const [from, to] = [Math.round(span.from), Math.round(span.to)];
  const ask = (by) => get(`/delayed/count${query({ topic, from, to, by })}`, { signal });
  const isShort = to - from <= 60_000;
  const byHour = isShort ? null : await ask("hour");
  const byMinute = isShort || (to - from <= day_ms && byHour.total <= counted_by_reading) ? await ask("minute") : null;
  const finest = byMinute ?? byHour;
  const most = busiest(finest.counts, live.now());
  const bucket_ms = to - from <= 2 * hour_ms ? 60_000 : to - from <= 2 * day_ms ? hour_ms : day_ms;
  // Days begin where the search does: at midnight of the browser's zone.
  const first = bucket_ms === day_ms ? from : Math.floor(from / bucket_ms) * bucket_ms;
  const length = Math.ceil((to - first) / bucket_ms);
  let bars = null;
  if (!isShort && length <= most_bars && (bucket_ms !== 60_000 || byMinute)) {
    bars = { from: first, bucket_ms, counts: Array(length).fill(0) };
    for (const each of finest.counts) bars.counts[Math.max(0, Math.floor((each.from - first) / bucket_ms))] += each.count;
  }
  const topics = !topic && finest.total > 0 && finest.total <= counted_by_reading ? await countTopics(from, to, signal) : [];
  return { total: finest.total, bars, peak: most.length ? { unit: byMinute ? "minute" : "hour", most } : null, topics };
}

// How many of the records of a time the topics with most pending have, those with most first; a topic without any is left out.
async function countTopics(from, to, signal) {
  const names = (live.topics?.topics ?? []).filter(({ pending }) => pending > 0).slice(0, counted_topics).map(({ name }) => name);
  // A topic that has been deleted since then has none.
  const total = (name) => get(`/delayed/count${query({ topic: name, from, to, by: "hour" })}`, { signal }).then((answer) => answer.total, () => 0);
  const counts = await Promise.all(names.map(async (name) => ({ name, count: await total(name) })));
  return counts.filter(({ count }) => count > 0).sort((a, b) => b.count - a.count);
}

const isEmpty = (search) => !search.words && !search.topic && !search.id && !search.key && !search.partition && search.recurring === null && !search.span;
export { isEmpty };

function parameters(search, extra) {
  return query({
    topic: search.topic, id: search.id, key: search.key, partition: search.partition, recurring: search.recurring,
    from: search.span?.from ?? null, to: search.span?.to ?? null, limit: page_size, ...extra,
  });
}

// A full page has a next one, even where that is empty.
async function nextIfAny(search, next, records, extra, signal) {
  if (!next || records.length !== page_size || isEmpty(search)) return next;
  const peek = await get(`/delayed${parameters(search, { after: next, limit: 1, ...extra })}`, { signal });
  return peek.records.length || peek.next ? next : null;
}

// Finds records and calls onFound({records, next, complete, hasMore}) after each step: `next` is where to go on, `complete` says that
// this search has ended, `hasMore` that there are others.  `after` goes on where an earlier search had stopped.
export async function find(search, { signal, after = null, onFound }) {
  const now = live.now();
  // The beginning of a name that is still being typed is no topic, and is not asked for.
  const listed = live.topics?.topics ?? [];
  if (search.topic && !listed.some(({ name }) => name === search.topic) && listed.some(({ name }) => name.startsWith(search.topic)))
    return onFound({ records: [], next: null, complete: true, hasMore: false });
  // Records that stay overdue have a line and a view of their own: the list begins with what comes next.
  const extra = isEmpty(search) && isStuck() ? { from: Math.round(now - just_due_ms) } : {};
  if (!search.words) {
    const page = await get(`/delayed${parameters(search, { after, ...extra })}`, { signal });
    let { records, next } = page;
    const until = performance.now() + patience_ms;
    // A page may be short although there is more.
    while (next && records.length < page_size && performance.now() < until) {
      onFound({ records, next, complete: false, hasMore: true });
      const more = await get(`/delayed${parameters(search, { after: next, ...extra })}`, { signal });
      records = [...records, ...more.records];
      next = more.next;
    }
    next = await nextIfAny(search, next, records, extra, signal);
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
  next = await nextIfAny(search, next, [...found.values()], { q: search.words }, signal);
  onFound({ records: sorted(), next, complete: true, hasMore: isCut || next !== null });
}
