// The answer to "is it well?": what somebody who looks after the broker should look at, each with the view that says more.

import { visible } from "./dom.js";
import { bytes, duration, integer, plural, rate } from "./format.js";

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
// A delivery that was refused is tried again within this time.
const tried_again_ms = 10_000;

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

// Why records stay overdue although their partition is well: what the broker as a whole says about that, as sentences.  `delivered`: deliveries per
// second, or null; `refusedAt`: when a delivery was last refused, or null.
export function whyBehind({ status, delivered, refusedAt, now }) {
  const { state, delayed, storage } = status;
  if (state === "without its data directory") return "The broker delivers nothing: its data directory was removed or replaced. Its log says what to do.";
  if (state === "failed") return "The broker delivers nothing: its journal could not be written. Its log says why.";
  if (state === "stopping") return "The broker is stopping. It delivers what is due after its next start.";
  const sentences = [];
  const full = storage.file_systems.find(({ free_bytes: free }) => free < (storage.reserve_bytes ?? 0));
  const isRefused = refusedAt !== null && now - refusedAt < tried_again_ms;
  if (isRefused)
    sentences.push(`Some deliveries are refused and tried again: ${full ? `the disk of ${full.directory} has only ${bytes(full.free_bytes)} free` : "the broker's log says why"}.`);
  // Those of partitions out of service are not on their way.
  const waiting = Math.max(0, delayed.overdue - (delayed.out_of_service ?? 0));
  if (waiting) sentences.push(`${isRefused ? "" : "The broker is behind: "}${plural(waiting, "record waits", "records wait")} for delivery${delivered > 0 ? `, which takes about ${duration(1000 * waiting / delivered)} at ${rate(delivered)}` : delivered === 0 ? ", and none was delivered in the last second" : ""}.`);
  return sentences.join(" ");
}

// The overdue records that partitions out of service have set aside, by partition: [{topic, partition, count, text}].
export const setAside = ({ out_of_service: out = [] }) => out.filter(({ set_aside: count }) => count > 0).map(({ topic, partition, reason, set_aside: count }) => ({
  topic, partition, count, text: `${visible(topic)}, partition ${partition}: ${integer(count)} overdue. The partition is out of service until a restart${reason ? `: ${visible(reason)}` : ""}.` }));

// One of several things by its name, or their number.
const oneOrMany = (all, one, many) => (all.length === 1 ? one(all[0]) : many(all));

const asideText = ({ overdue, out_of_service: aside = 0 }) => (aside === 0 ? "" : aside >= overdue ? ": their partitions are out of service" : `; ${integer(aside)} of them in partitions out of service`);

// `oldest`: for how long the oldest overdue record has been due, or null.  [{name, text, hash}]
export function thingsToSee({ status, topics, groups, history, now, oldest }) {
  const things = [];
  const add = (name, text, hash) => things.push({ name, text, hash });
  const { storage, delayed } = status;
  const reserve = storage.reserve_bytes ?? 0;
  if (status.state !== "running") add("state", `the broker's state is “${status.state}”`, "#shards");
  if (oldest !== null && oldest >= stuck_ms) add("overdue", `${integer(delayed.overdue)} overdue, the oldest for ${duration(oldest)}${asideText(delayed)}`, "#overdue");
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
