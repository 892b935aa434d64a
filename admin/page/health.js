// The answer to "is it well?": what somebody who looks after the broker should look at, each with the view that says more.

import { visible } from "./dom.js";
import { bytes, duration, integer, plural } from "./format.js";

// A trend is told from so many minutes on, because a log that is rolled or a checkpoint would be taken for one; the page has the points of an hour.
const trend_ms = 55 * 60_000;
// From so little time to a full disk on it is among the things to look at.
const soon_ms = 24 * 3_600_000;
const far_ms = 365 * 86_400_000;
// Beyond this part of the limit large requests wait for memory.
const short_memory = 7 / 8;
// Records that are overdue for a shorter time wait for the turn of a busy broker.
const stuck_ms = 5000;
const recent_ms = 600_000;

// Whether a disk fills if it goes on as it did: {length, left, isSoon}, `left` in milliseconds or null: it does not. Null: there are too few points to tell.
export function diskTrend(points, reserve) {
  const known = points.filter(({ free }) => free !== null && free !== undefined);
  const [first, last] = [known[0], known.at(-1)];
  if (!first || last.at - first.at < trend_ms) return null;
  const length = last.at - first.at;
  const left = first.free > last.free ? Math.max(1000, (last.free - reserve) * length / (first.free - last.free)) : Infinity;
  return left < far_ms ? { length, left, isSoon: left < soon_ms } : { length, left: null, isSoon: false };
}

export const isMemoryShort = ({ client_memory_bytes: held, client_memory_limit_bytes: most }) => held > most * short_memory;

// One of several things by its name, or their number.
const oneOrMany = (all, one, many) => (all.length === 1 ? one(all[0]) : many(all));

// `oldest`: for how long the oldest overdue record has been due, or null.  [{name, text, hash}]
export function thingsToSee({ status, topics, groups, history, now, oldest }) {
  const things = [];
  const add = (name, text, hash) => things.push({ name, text, hash });
  const { storage, delayed } = status;
  const reserve = storage.reserve_bytes ?? 0;
  if (status.state !== "running") add("state", `the broker's state is “${status.state}”`, "#shards");
  if (oldest !== null && oldest >= stuck_ms) add("overdue", `${integer(delayed.overdue)} overdue, the oldest for ${duration(oldest)}`, "#overdue");
  const out = status.out_of_service ?? [];
  if (out.length) {
    const names = [...new Set(out.map(({ topic }) => topic))];
    add("out-of-service", oneOrMany(out, ({ topic, partition }) => `partition ${partition} of ${visible(topic)} is out of service`, (all) => `${integer(all.length)} partitions are out of service`),
      names.length === 1 ? `#topics/${encodeURIComponent(names[0])}` : "#topics");
  }
  const least = storage.file_systems.reduce((min, { free_bytes: free }) => Math.min(min, free), Infinity);
  const trend = diskTrend(history, reserve);
  if (least < 2 * reserve) add("disk", `the disk has only ${bytes(least)} free`, "#shards");
  else if (trend?.isSoon) add("disk", `the disk is full in about ${duration(trend.left)}`, "#shards");
  if (isMemoryShort(status)) add("memory", `clients use ${bytes(status.client_memory_bytes)} of ${bytes(status.client_memory_limit_bytes)} memory`, "#shards");
  const left = (groups?.groups ?? []).filter(({ members, lag }) => members === 0 && lag > 0);
  if (left.length) {
    add("groups", oneOrMany(left, ({ group, lag }) => `group ${visible(group)} has no members and is ${plural(lag, "record")} behind`, (all) => `${integer(all.length)} groups without members are behind`),
      left.length === 1 ? `#groups/${encodeURIComponent(left[0].group)}` : "#groups");
  }
  const refusing = (topics?.topics ?? []).filter(({ refused_batches: refused }) => refused?.last && refused.last.at_ms > now - recent_ms);
  if (refusing.length) add("refused", oneOrMany(refusing, ({ name }) => `batches for ${visible(name)} were refused`, (all) => `batches for ${integer(all.length)} topics were refused`), "#clients");
  return things;
}
